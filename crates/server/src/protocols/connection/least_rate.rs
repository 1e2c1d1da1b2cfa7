//! The least rate at which a client must continue to send. With a time-out that every byte resets, a client could hold
//! a connection without end by sending a byte now and then.

use crate::base::clock;
use crate::protocols::connection::limits::LEAST_RATE;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes that are waited for: within each window there must come as many as `LEAST_RATE` makes of it.
#[derive(Debug)]
pub(crate) struct LeastRate {
    window: Duration,
    since: Instant,
    received: u64,
}

impl LeastRate {
    /// Begins now.
    pub(crate) fn new(window: Duration) -> LeastRate {
        LeastRate { window, since: Instant::now(), received: 0 }
    }

    /// Bytes that each window must bring.
    pub(crate) fn least_bytes(&self) -> u64 {
        (self.window.as_secs_f64() * LEAST_RATE as f64).ceil() as u64
    }

    /// Notes bytes that came. With enough of them the next window begins.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.received += bytes;
        if self.received >= self.least_bytes() {
            self.received = 0;
            self.since = Instant::now();
        }
    }

    /// When the client is too slow, unless more comes before.
    pub(crate) fn end(&self) -> Instant {
        clock::after(self.since, self.window)
    }

    /// What a client does that was too slow.
    pub(crate) fn describe(&self) -> String {
        format!("brought fewer than {} bytes in {} s", self.least_bytes(), self.window.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    /// Seconds until a client is too slow that sends so many bytes each second, if that is within 1000.
    async fn seconds(rate: u64) -> Option<u32> {
        let mut least = LeastRate::new(Duration::from_secs(20));
        for second in 1..=1000 {
            advance(Duration::from_secs(1)).await;
            if Instant::now() >= least.end() {
                return Some(second);
            }
            least.add(rate);
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn a_trickle_ends_and_whoever_is_slightly_faster_than_the_least_rate_goes_on() {
        assert_eq!(seconds(0).await, Some(20));
        assert_eq!(seconds(1).await, Some(20));
        assert_eq!(seconds(LEAST_RATE / 2).await, Some(20));
        assert_eq!(seconds(LEAST_RATE * 20 / 19 + 1).await, None);
        assert_eq!(seconds(1 << 20).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_after_many_bytes_may_last_a_window() {
        let mut least = LeastRate::new(Duration::from_secs(20));
        least.add(1 << 30);
        assert_eq!(least.end(), Instant::now() + Duration::from_secs(20));
        assert!(LeastRate::new(Duration::MAX).end() > Instant::now() + Duration::from_secs(86_400));
    }
}
