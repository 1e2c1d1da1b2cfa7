//! Which requests have a line, and the end of the log.

use crate::base::access_log::line::AccessLine;
use crate::base::access_log::queue::{Queue, Written, queue};
use crate::base::access_log::record::Format;
use jitney_core::config::options::ServerOptions;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// At the end the last lines may take this long: the reader of the log may have stopped.
const LAST_LINES: Duration = Duration::from_secs(1);
/// An odd number near 2^64 divided by the golden ratio: its multiples are spread evenly over the range of a u64.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The access log of a server.
#[derive(Debug)]
pub struct AccessLog {
    /// A request has a line if its place in the range of a u64 is at most this.
    most: u64,
    requests: AtomicU64,
    queue: Queue,
}

impl AccessLog {
    /// Starts the thread that writes to stderr; `None` if the options ask for no access log.
    pub fn start(options: &ServerOptions) -> std::io::Result<Option<AccessLog>> {
        if options.access_log <= 0.0 {
            return Ok(None);
        }
        let format = if options.log_format == "json" { Format::Json } else { Format::Text };
        let (log, written) = AccessLog::new(options.access_log);
        let write = move || written.write(format, &mut std::io::stderr());
        std::thread::Builder::new().name("jitney-access".into()).spawn(write)?;
        Ok(Some(log))
    }

    fn new(share: f64) -> (AccessLog, Written) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates at both ends")]
        let most = (share * 2f64.powi(64)) as u64;
        let (queue, written) = queue();
        (AccessLog { most, requests: AtomicU64::new(0), queue }, written)
    }

    /// The line of a request that begins, of a client at this address; `None` if this request is not among the share that
    /// has lines.
    pub(crate) fn begin(&self, client: Option<IpAddr>) -> Option<Box<AccessLine>> {
        let place = self.requests.fetch_add(1, Ordering::Relaxed).wrapping_mul(SPREAD);
        (place <= self.most).then(|| Box::new(AccessLine::new(self.queue.clone(), client)))
    }

    /// Waits until the lines so far have been written, for a second at most.
    pub fn finish(&self) {
        self.queue.finish(LAST_LINES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_requests_has_lines() {
        for (share, expected) in [(1.0, 1000..=1000), (0.5, 495..=505), (0.01, 9..=11), (1e-9, 0..=1)] {
            let (log, written) = AccessLog::new(share);
            (0..1000).for_each(|_| drop(log.begin(None)));
            let lines = written.take_all();
            assert!(expected.contains(&lines), "{share}: {lines}");
        }
        assert!(AccessLog::start(&ServerOptions::for_test()).unwrap().is_none());
    }

    #[test]
    fn the_end_waits_for_the_lines_before_it_and_not_without_end() {
        let options = ServerOptions { access_log: 1.0, ..ServerOptions::for_test() };
        let log = AccessLog::start(&options).unwrap().unwrap();
        drop(log.begin(None));
        log.finish();
        let (stuck, _written) = AccessLog::new(1.0);
        let began = std::time::Instant::now();
        stuck.finish();
        assert!(began.elapsed() >= LAST_LINES);
    }
}
