//! The life of one thread of the load generator: it starts its load, reports each interval, and ends.

use super::thread::{Task, Thread};
use super::usage::Usage;
use super::{closed, open};
use crate::rules::intervals::Interval;
use crate::rules::plan::Load;
use crate::rules::totals::Totals;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::Sender;
use tokio::task::LocalSet;

/// One interval of one thread.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) number: usize,
    pub(super) interval: Interval,
}

/// Runs one thread's part of the load, reports each interval, and returns its totals.
pub(super) fn run(number: usize, task: Task, reports: &Sender<Report>) -> io::Result<Totals> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut stop = task.stop.clone();
    let thread = Rc::new(Thread::new(number, task));
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
