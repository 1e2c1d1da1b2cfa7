//! What a process of this machine uses, as Linux says it in `/proc`. Elsewhere nothing is known.

use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, getrlimit};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What one process uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessStats {
    /// CPU time that it took, in seconds.
    pub cpu_s: f64,
    /// Bytes of memory, shared pages included.
    pub resident_bytes: u64,
    /// Its threads.
    pub threads: u64,
    /// When it was started, in seconds since 1970.
    pub started_s: f64,
}

impl ProcessStats {
    /// Those of the process with this id; `None` if there is none, or if this is not Linux.
    pub fn of(pid: u32) -> Option<ProcessStats> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        ProcessStats::parse(&stat, &statm, booted_s()?)
    }

    /// `stat` and `statm` as the kernel writes them, of a machine that was started `booted_s` seconds after 1970.
    fn parse(stat: &str, statm: &str, booted_s: f64) -> Option<ProcessStats> {
        // The name of a program is in parentheses and may hold any character, also a parenthesis.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // The first of these fields is number 3 in the manual.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let ticks = clock_ticks_per_second() as f64;
        let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(ProcessStats {
            cpu_s: (number(14)? + number(15)?) as f64 / ticks,
            resident_bytes: pages * rustix::param::page_size() as u64,
            threads: number(20)?,
            started_s: booted_s + number(22)? as f64 / ticks,
        })
    }
}

/// When this machine was started, in seconds since 1970. It is read once: the two clocks differ a little at each reading, and a
/// start time that changes looks like a restart.
fn booted_s() -> Option<f64> {
    static BOOTED_S: LazyLock<Option<f64>> = LazyLock::new(|| {
        let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
        let up: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
        Some(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64() - up)
    });
    *BOOTED_S
}

/// Files and sockets that this process has open.
pub fn open_fds() -> Option<u64> {
    // One of them is the folder that is being read.
    Some((std::fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

/// Files and sockets that this process may have open; `None` if any number.
pub fn max_fds() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_program_with_a_strange_name_are_found() {
        let mut fields = vec!["0"; 50];
        (fields[0], fields[11], fields[12], fields[17], fields[19]) = ("S", "150", "50", "7", "1000");
        let stat = format!("42 (a (b) c) {}", fields.join(" "));
        let found = ProcessStats::parse(&stat, "900 300 20 1 0 80 0", 1e9).unwrap();
        let ticks = clock_ticks_per_second() as f64;
        let expected = ProcessStats {
            cpu_s: 200.0 / ticks,
            resident_bytes: 300 * rustix::param::page_size() as u64,
            threads: 7,
            started_s: 1e9 + 1000.0 / ticks,
        };
        assert_eq!(found, expected);
        assert_eq!(ProcessStats::parse("42 (cut", "1 2", 0.0), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_found() {
        let found = ProcessStats::of(std::process::id()).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(found.resident_bytes > 1 << 20 && found.threads >= 1, "{found:?}");
        assert!(found.started_s <= now + 1.0 && found.started_s > now - 3600.0, "{found:?} at {now}");
        std::thread::sleep(Duration::from_millis(15)); // Longer than a tick of /proc/uptime.
        let later = ProcessStats::of(std::process::id()).unwrap();
        assert!((later.started_s - found.started_s).abs() < f64::EPSILON, "{later:?} after {found:?}");
        assert!(open_fds().unwrap() >= 3);
    }
}
