//! The line of one request while it runs. It is written when it is dropped, so no request ends without its line.

use crate::base::access_log::queue::Queue;
use crate::base::access_log::record::Record;
use jitney_core::tables::outcome::Outcome;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

/// Bytes of a method in a line; a longer one is cut.
const LONGEST_METHOD: usize = 256;
/// Bytes of a path in a line; a longer one is cut.
const LONGEST_PATH: usize = 1024;

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'e> {
    pub(crate) deployment: Option<&'e str>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) status: u16,
    pub(crate) items: usize,
    /// Items in the batch of its slowest item.
    pub(crate) batch_size: u64,
}

/// One request, from its head until its answer has been handed over. If it is dropped before it has ended, its client has
/// left.
#[derive(Debug)]
pub(crate) struct AccessLine {
    queue: Queue,
    began: Instant,
    request_bytes: Arc<AtomicU64>,
    /// `None` once it is written.
    record: Option<Box<Record>>,
}

impl AccessLine {
    /// Of a client at this address.
    pub(super) fn new(queue: Queue, client: Option<IpAddr>) -> AccessLine {
        let record = Record {
            at: SystemTime::now(),
            request_id: String::new(),
            protocol: "",
            client,
            method: String::new(),
            path: String::new(),
            deployment: None,
            outcome: Some(Outcome::Cancelled),
            status: Outcome::Cancelled.http_status(),
            duration_ms: 0.0,
            items: 0,
            batch_size: 0,
            request_bytes: 0,
            answer_bytes: 0,
        };
        AccessLine { queue, began: Instant::now(), request_bytes: Arc::default(), record: Some(Box::new(record)) }
    }

    fn change(&mut self, change: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut self.record {
            change(record);
        }
    }

    /// Says which request this is.
    pub(crate) fn describe(&mut self, request_id: &str, protocol: &'static str, deployment: Option<&str>) {
        self.change(|record| {
            request_id.clone_into(&mut record.request_id);
            record.protocol = protocol;
            record.deployment = deployment.map(str::to_owned);
        });
    }

    /// Says which route of HTTP was asked.
    pub(crate) fn set_route(&mut self, method: &str, path: &str) {
        self.change(|record| {
            record.method = printable(method, LONGEST_METHOD);
            record.path = printable(path, LONGEST_PATH);
        });
    }

    /// Where the bytes of its body are counted.
    pub(crate) fn request_bytes(&self) -> Arc<AtomicU64> {
        self.request_bytes.clone()
    }

    /// Says how it ended. A deployment that was known before stays.
    pub(crate) fn end(&mut self, ended: Ended<'_>) {
        self.change(|record| {
            if let Some(deployment) = ended.deployment {
                record.deployment = Some(deployment.to_owned());
            }
            (record.outcome, record.status) = (ended.outcome, ended.status);
            (record.items, record.batch_size) = (ended.items, ended.batch_size);
        });
    }

    /// Counts bytes of its answer.
    pub(crate) fn add_answer_bytes(&mut self, bytes: usize) {
        self.change(|record| record.answer_bytes += bytes as u64);
    }
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        let Some(mut record) = self.record.take() else { return };
        // Microseconds are enough, and a line of text stays short.
        #[allow(clippy::cast_precision_loss, reason = "a request takes less than 285 years")]
        let duration_ms = self.began.elapsed().as_micros() as f64 / 1000.0;
        record.duration_ms = duration_ms;
        record.request_bytes = self.request_bytes.load(Ordering::Relaxed);
        self.queue.add(record);
    }
}

/// The first `most` bytes of a text of the client's, without characters that end the line or move a terminal.
fn printable(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let is_unfit = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let mut shown = text[..end].replace(is_unfit, "\u{fffd}");
    if end < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::access_log::queue::queue;

    #[test]
    fn what_a_client_writes_stays_in_its_line_and_is_cut() {
        let (queue, _written) = queue();
        let mut line = AccessLine::new(queue, None);
        line.set_route("GET", "/a\u{2028}b\u{2029}c\u{85}d\u{1b}[31m\n\u{e9}");
        let path = &line.record.as_ref().unwrap().path;
        assert_eq!(path, "/a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}[31m\u{fffd}\u{e9}");
        line.set_route(&"M".repeat(257), &format!("/{}", "\u{e9}".repeat(30_000)));
        let record = line.record.as_ref().unwrap();
        assert_eq!(record.method, "M".repeat(256) + "…");
        // A character of two bytes would end behind the last byte that fits.
        assert_eq!(record.path, format!("/{}…", "\u{e9}".repeat(511)));
    }

    #[test]
    fn a_route_that_fits_is_written_as_it_is() {
        let (queue, _written) = queue();
        let mut line = AccessLine::new(queue, None);
        let path = "p".repeat(LONGEST_PATH);
        line.set_route("POST", &path);
        let record = line.record.as_ref().unwrap();
        assert_eq!((&*record.method, &record.path), ("POST", &path));
    }
}
