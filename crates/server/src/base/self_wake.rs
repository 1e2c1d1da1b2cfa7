//! One turn of a connection: polled again at once when it has woken itself meanwhile.
//!
//! With every body hyper's service wakes hyper's reader, in one and the same task. A runtime takes a task that wakes
//! itself for one that steps back: it goes to the end of the queue, and another thread is woken to look after it, which
//! costs two system calls and a switch of threads on the way of each request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Turns without a pause for others. Reading a head, its body and handing both over take two.
const TURNS: u32 = 4;

/// Wakes its task, except while the task is in its turn anyway.
#[derive(Debug)]
struct Bell {
    task: Waker,
    in_turn: AtomicBool,
    rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // This order, and the opposite one in `poll`: either the turn sees the bell, or the bell sees no turn.
        self.rung.store(true, Ordering::SeqCst);
        if !self.in_turn.load(Ordering::SeqCst) {
            self.task.wake_by_ref();
        }
    }
}

/// Polls one future of a task. The task keeps the waker of its first poll.
#[derive(Debug, Default)]
pub(crate) struct SelfWake(Option<(Arc<Bell>, Waker)>);

impl SelfWake {
    /// Like the future's own `poll`.
    pub(crate) fn poll<F: Future>(&mut self, mut future: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let (bell, waker) = self.0.get_or_insert_with(|| {
            let (in_turn, rung) = (AtomicBool::new(false), AtomicBool::new(false));
            let bell = Arc::new(Bell { task: cx.waker().clone(), in_turn, rung });
            let waker = Waker::from(bell.clone());
            (bell, waker)
        });
        for _ in 0..TURNS {
            bell.in_turn.store(true, Ordering::SeqCst);
            // Taken, not overwritten: what came with a bell that is silenced here must be seen by the poll that follows.
            bell.rung.swap(false, Ordering::SeqCst);
            let polled = future.as_mut().poll(&mut Context::from_waker(waker));
            bell.in_turn.store(false, Ordering::SeqCst);
            if polled.is_ready() || !bell.rung.load(Ordering::SeqCst) {
                return polled;
            }
        }
        bell.task.wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::AtomicU32;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Polls a future that wakes itself `times` times: how often it was polled, whether it ended, how often its task woke.
    fn polled(times: u32) -> (u32, bool, u32) {
        let (mut polls, count) = (0, Arc::new(Count::default()));
        let future = poll_fn(|cx: &mut Context<'_>| {
            polls += 1;
            if polls > times {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        let is_over =
            SelfWake::default().poll(pin!(future), &mut Context::from_waker(&count.clone().into())).is_ready();
        (polls, is_over, count.0.load(Ordering::SeqCst))
    }

    #[test]
    fn a_future_that_wakes_itself_goes_on_at_once_but_not_for_ever() {
        assert_eq!(polled(0), (1, true, 0));
        assert_eq!(polled(TURNS - 1), (TURNS, true, 0));
        assert_eq!(polled(TURNS), (TURNS, false, 1));
    }

    #[test]
    fn a_wake_between_turns_reaches_the_task() {
        let (mut turn, count) = (SelfWake::default(), Arc::new(Count::default()));
        let mut inner = None;
        let mut future = pin!(poll_fn(|cx: &mut Context<'_>| {
            inner = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        assert!(turn.poll(future.as_mut(), &mut Context::from_waker(&count.clone().into())).is_pending());
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        inner.unwrap().wake();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_is_lost_between_threads() {
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        let sender = tokio::spawn(async move {
            for number in 0..20_000 {
                send.send(number).unwrap();
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
        let mut turn = SelfWake::default();
        let mut sum = 0_u64;
        let mut future = Box::pin(async {
            while let Some(number) = receive.recv().await {
                sum += number;
            }
        });
        tokio::time::timeout(std::time::Duration::from_secs(60), poll_fn(|cx| turn.poll(future.as_mut(), cx)))
            .await
            .expect("every message wakes");
        drop(future);
        sender.await.unwrap();
        assert_eq!(sum, 19_999 * 20_000 / 2);
    }
}
