//! What the tasks of one thread share.

use super::connection::Connection;
use crate::rules::answer::{Answer, Loss};
use crate::rules::intervals::{Recorder, Window};
use crate::rules::plan::{Load, Plan};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout_at};

/// The parameters of every thread.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) plan: Arc<Plan>,
    pub(super) address: SocketAddr,
    /// Whole requests, head and body.
    pub(super) requests: Arc<[Box<[u8]>]>,
    pub(super) window: Window,
    pub(super) begin: Instant,
    pub(super) stop: watch::Receiver<bool>,
}

/// One thread's view of the run.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) number: usize,
    pub(super) task: Task,
    pub(super) recorder: RefCell<Recorder>,
    /// How many requests this thread has begun.
    begun: Cell<usize>,
    timeout: Duration,
}

impl Thread {
    pub(super) fn new(number: usize, task: Task) -> Thread {
        let is_closed = matches!(task.plan.load, Load::Closed { .. });
        Thread {
            number,
            recorder: RefCell::new(Recorder::new(task.window, is_closed, task.plan.items_per_request)),
            begun: Cell::new(0),
            timeout: Duration::from_secs_f64(task.plan.timeout_s),
            task,
        }
    }

    pub(super) fn threads(&self) -> usize {
        self.task.plan.threads
    }

    /// Nanoseconds since the run began; 0 before.
    pub(super) fn now_ns(&self) -> u64 {
        Instant::now().saturating_duration_since(self.task.begin).as_nanos() as u64
    }

    pub(super) fn instant(&self, at_ns: u64) -> Instant {
        self.task.begin + Duration::from_nanos(at_ns)
    }

    pub(super) async fn sleep_until(&self, at_ns: u64) {
        sleep_until(self.instant(at_ns).into()).await;
    }

    /// Sends the next input and counts its outcome. Returns whether a connection was available.
    pub(super) async fn ask(&self, connection: &mut Connection, due_ns: u64) -> bool {
        let deadline = self.instant(due_ns) + self.timeout;
        let request = self.next_request();
        let opened = || self.recorder.borrow_mut().opened();
        let (mut first_ns, mut before_ns) = (None, None);
        let came = |count| {
            let now_ns = self.now_ns();
            first_ns.get_or_insert(now_ns.saturating_sub(due_ns));
            self.recorder.borrow_mut().parts(before_ns.replace(now_ns), now_ns, count);
        };
        // One that waited for a connection until it was too late is not sent any more.
        let mut end = if Instant::now() < deadline {
            let answer = connection.ask(request, self.task.plan.stream, opened, came);
            timeout_at(deadline.into(), answer).await.unwrap_or(Err(Loss::Timeout))
        } else {
            Err(Loss::Timeout)
        };
        if let Ok(Answer { streamed: Some(streamed), .. }) = &mut end {
            streamed.first_part_ns = first_ns;
        }
        self.recorder.borrow_mut().ended(due_ns, self.now_ns(), &end);
        end != Err(Loss::Connect)
    }

    /// Inputs are taken in turn, by all threads together.
    fn next_request(&self) -> &[u8] {
        let begun = self.begun.get();
        self.begun.set(begun + 1);
        let requests = &self.task.requests;
        &requests[(begun * self.threads() + self.number) % requests.len()]
    }
}
