//! Wakes a task at an instant. tokio's own timers tick once a millisecond, in which a fast server answers ten requests.

use std::io;
use std::time::{Duration, Instant};

/// Below this it is not worth going to sleep: the task gives way to others and looks again.
const SHORT: Duration = Duration::from_micros(20);

/// After so many instants that have passed already the other tasks get a turn: answers must be read, too.
const IN_A_ROW: u32 = 64;

/// One timer, for one task.
#[derive(Debug)]
pub(super) struct Alarm {
    passed: u32,
    #[cfg(target_os = "linux")]
    timer: tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>,
}

impl Alarm {
    /// Waits until `at`.
    pub(super) async fn until(&mut self, at: Instant) -> io::Result<()> {
        loop {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.passed += 1;
                if self.passed.is_multiple_of(IN_A_ROW) {
                    tokio::task::yield_now().await;
                }
                return Ok(());
            }
            if left <= SHORT {
                tokio::task::yield_now().await;
            } else {
                self.sleep(left).await?;
            }
        }
    }
}

#[cfg(target_os = "linux")]
impl Alarm {
    #[expect(deprecated, reason = "`register` is unsafe code; this descriptor is owned and never exchanged")]
    pub(super) fn new() -> io::Result<Alarm> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Alarm { passed: 0, timer: tokio::io::unix::AsyncFd::new(timer)? })
    }

    async fn sleep(&mut self, length: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: length.as_secs() as _, tv_nsec: length.subsec_nanos().into() };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: value })?;
        loop {
            let mut guard = self.timer.readable().await?;
            let mut count = [0u8; 8];
            match guard.try_io(|timer| rustix::io::read(timer, &mut count).map_err(io::Error::from)) {
                Ok(read) => return read.map(drop),
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        Ok(Alarm { passed: 0 })
    }

    async fn sleep(&mut self, length: Duration) -> io::Result<()> {
        tokio::time::sleep(length).await;
        Ok(())
    }
}
