//! Independent clients: requests are sent when they are due, whatever happened to earlier ones.

use super::alarm::Alarm;
use super::connection::Connection;
use super::thread::Thread;
use crate::rules::arrivals::Schedule;
use crate::rules::plan::Arrivals;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::task::{LocalSet, spawn_local};

/// Connections that are free, and requests that wait for one.
#[derive(Debug, Default)]
struct Pool {
    idle: Vec<Connection>,
    busy: usize,
    waiting: VecDeque<u64>,
}

/// This thread's part of the arrivals, in the order of time.
pub(super) fn schedule(
    thread: &Thread,
    arrivals: Arrivals,
    rate_per_s: f64,
    burst: u32,
) -> impl Iterator<Item = u64> + use<> {
    let end_ns = thread.task.window.to_ns;
    let whole = Schedule::new(arrivals, rate_per_s, burst, thread.task.plan.seed);
    whole.share(thread.number, thread.threads()).take_while(move |&due_ns| due_ns < end_ns)
}

/// Starts the one task that starts all others.
pub(super) fn start(
    tasks: &LocalSet,
    thread: &Rc<Thread>,
    schedule: impl Iterator<Item = u64> + 'static,
    connections: usize,
) {
    let thread = thread.clone();
    tasks.spawn_local(async move {
        let mut alarm = Alarm::new().expect("a timer can be made");
        let pool = Rc::new(RefCell::new(Pool::default()));
        for due_ns in schedule {
            alarm.until(thread.instant(due_ns)).await.expect("a timer works");
            thread.recorder.borrow_mut().due(due_ns);
            let mut free = pool.borrow_mut();
            let Some(connection) = free.take(&thread, connections) else {
                free.waiting.push_back(due_ns);
                thread.recorder.borrow_mut().held(due_ns);
                continue;
            };
            drop(free);
            thread.recorder.borrow_mut().sent(due_ns, thread.now_ns());
            spawn_local(serve(thread.clone(), pool.clone(), connection, due_ns));
        }
    });
}

impl Pool {
    fn take(&mut self, thread: &Thread, connections: usize) -> Option<Connection> {
        let connection = match self.idle.pop() {
            Some(connection) => connection,
            None if self.busy < connections => Connection::new(thread.task.address),
            None => return None,
        };
        self.busy += 1;
        Some(connection)
    }
}

/// Sends a request, and then those that wait.
async fn serve(thread: Rc<Thread>, pool: Rc<RefCell<Pool>>, mut connection: Connection, mut due_ns: u64) {
    loop {
        thread.ask(&mut connection, due_ns).await;
        let mut pool = pool.borrow_mut();
        let Some(next_ns) = pool.waiting.pop_front() else {
            pool.busy -= 1;
            pool.idle.push(connection);
            return;
        };
        due_ns = next_ns;
    }
}
