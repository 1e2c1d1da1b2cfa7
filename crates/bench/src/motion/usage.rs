//! What a thread of the load generator takes of the machine.

use rustix::time::{ClockId, clock_gettime};

/// What this thread has used of its core so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) cpu_ns: u64,
    pub(super) waited_ns: u64,
}

impl Usage {
    pub(super) fn now() -> Usage {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Usage { cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64, waited_ns: waited_ns().unwrap_or(0) }
    }
}

/// How long this thread was ready to compute and had no core; `None` where the system does not say.
fn waited_ns() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().nth(1)?.parse().ok()
}
