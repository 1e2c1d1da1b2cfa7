//! What the tasks of one thread share, and the life of that thread.

use super::connection::Connection;
use super::run::Report;
use super::{closed, open};
use crate::rules::answer::Loss;
use crate::rules::intervals::{Interval, Recorder, Window};
use crate::rules::plan::{Load, Plan};
use crate::rules::totals::Totals;
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::{sleep_until, timeout_at};

/// What every thread is told.
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

    /// Sends the next input and counts what comes of it; whether a connection could be had.
    pub(super) async fn ask(&self, connection: &mut Connection, due_ns: u64) -> bool {
        let deadline = self.instant(due_ns) + self.timeout;
        let request = self.next_request();
        let opened = || self.recorder.borrow_mut().opened();
        // One that waited for a connection until it was too late is not sent any more.
        let end = if Instant::now() < deadline {
            timeout_at(deadline.into(), connection.ask(request, opened)).await.unwrap_or(Err(Loss::Timeout))
        } else {
            Err(Loss::Timeout)
        };
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

/// Carries out one thread's part; tells of each interval, and returns what it counted.
pub(super) fn run(number: usize, task: Task, reports: &Sender<Report>) -> io::Result<Totals> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut stop = task.stop.clone();
    let thread = Rc::new(Thread {
        number,
        recorder: RefCell::new(Recorder::new(
            task.window,
            matches!(task.plan.load, Load::Closed { .. }),
            task.plan.items_per_request,
        )),
        begun: Cell::new(0),
        timeout: Duration::from_secs_f64(task.plan.timeout_s),
        task,
    });
    let tasks = LocalSet::new();
    tasks.spawn_local(tell(thread.clone(), reports.clone()));
    match thread.task.plan.load {
        Load::Closed { users, ramp_s, think_s } => closed::start(&tasks, &thread, users, ramp_s, think_s),
        Load::Open { rate_per_s, arrivals, burst, connections } => {
            let schedule = open::schedule(&thread, arrivals, rate_per_s, burst);
            open::start(&tasks, &thread, schedule, connections.div_ceil(thread.threads()));
        }
    }
    runtime.block_on(async {
        tokio::select! {
            () = tasks => {}
            _ = stop.wait_for(|&is_stopped| is_stopped) => {}
        }
    });
    drop(runtime);
    let thread = Rc::into_inner(thread).expect("all tasks have ended");
    Ok(thread.recorder.into_inner().finish())
}

/// Sends each interval when it is over.
async fn tell(thread: Rc<Thread>, reports: Sender<Report>) {
    let window = thread.task.window;
    thread.sleep_until(window.from_ns).await;
    let mut before = Usage::now();
    for number in 0..window.intervals() {
        thread.sleep_until(window.interval(number).1).await;
        let after = Usage::now();
        let mut interval: Interval = thread.recorder.borrow_mut().close();
        interval.cpu_ns = after.cpu_ns.saturating_sub(before.cpu_ns);
        interval.waited_ns = after.waited_ns.saturating_sub(before.waited_ns);
        before = after;
        if reports.send(Report { number, interval }).is_err() {
            return;
        }
    }
}

/// What this thread has used of its core so far.
#[derive(Clone, Copy, Debug)]
struct Usage {
    cpu_ns: u64,
    waited_ns: u64,
}

impl Usage {
    fn now() -> Usage {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Usage { cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64, waited_ns: waited_ns().unwrap_or(0) }
    }
}

/// How long this thread was ready to compute and had no core; `None` where the system does not say.
fn waited_ns() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().nth(1)?.parse().ok()
}
