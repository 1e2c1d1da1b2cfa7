//! Users: each asks, waits for its answer, thinks, and asks again.

use super::connection::Connection;
use super::thread::Thread;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::LocalSet;

/// Pause of a user after a refused connection. Without it a dead server gets a million attempts a second.
const RETRY: Duration = Duration::from_millis(10);
const SECOND_NS: f64 = 1e9;

/// Starts this thread's users.
pub(super) fn start(tasks: &LocalSet, thread: &Rc<Thread>, users: usize, ramp_s: f64, think_s: (f64, f64)) {
    for user in (thread.number..users).step_by(thread.threads()) {
        let start_ns = (ramp_s * SECOND_NS * user as f64 / users as f64) as u64;
        let random = fastrand::Rng::with_seed(thread.task.plan.seed.wrapping_add(user as u64));
        tasks.spawn_local(live(thread.clone(), start_ns, think_s, random));
    }
}

async fn live(thread: Rc<Thread>, start_ns: u64, think_s: (f64, f64), mut random: fastrand::Rng) {
    let mut connection = Connection::new(thread.task.address);
    let end_ns = thread.task.window.to_ns;
    thread.sleep_until(start_ns.min(end_ns)).await;
    loop {
        let due_ns = thread.now_ns();
        if due_ns >= end_ns {
            return;
        }
        thread.recorder.borrow_mut().due(due_ns);
        if !thread.ask(&mut connection, due_ns).await {
            tokio::time::sleep(RETRY).await;
        }
        let pause = (think_s.0 + (think_s.1 - think_s.0) * random.f64()) * SECOND_NS;
        if pause > 0.0 {
            thread.sleep_until((thread.now_ns() + pause as u64).min(end_ns)).await;
        }
    }
}
