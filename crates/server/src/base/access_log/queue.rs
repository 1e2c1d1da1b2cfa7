//! Where lines wait until they are written: a bounded queue, and the thread that empties it.

use crate::base::access_log::record::{Format, Record};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Lines that may wait; further ones are dropped and counted.
const WAITING: usize = 8192;
/// After a write the thread sleeps for this long: many lines then leave with one write, and no request has to wake it.
const GATHER: Duration = Duration::from_millis(10);
/// Bytes of lines that leave with one write.
const WRITE_BYTES: usize = 64 << 10;
/// The end of the queue at which requests put their lines.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    waiting: SyncSender<Waiting>,
    dropped: Arc<AtomicU64>,
}

/// The end of the queue at which lines are written.
#[derive(Debug)]
pub(super) struct Written {
    waiting: Receiver<Waiting>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Waiting {
    Line(Box<Record>),
    /// Answered when all lines before it have been written.
    End(SyncSender<()>),
}

/// An empty queue.
pub(super) fn queue() -> (Queue, Written) {
    let (sender, receiver) = sync_channel(WAITING);
    let dropped = Arc::<AtomicU64>::default();
    (Queue { waiting: sender, dropped: dropped.clone() }, Written { waiting: receiver, dropped })
}

impl Queue {
    /// Takes a line, or counts it if there is no room. Never waits.
    pub(super) fn add(&self, record: Box<Record>) {
        if let Err(TrySendError::Full(_)) = self.waiting.try_send(Waiting::Line(record)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the lines so far have been written, for this long at most.
    pub(super) fn finish(&self, longest: Duration) {
        let (written, wait) = sync_channel(1);
        if self.waiting.try_send(Waiting::End(written)).is_ok() {
            let _ = wait.recv_timeout(longest);
        }
    }
}

impl Written {
    /// Writes lines until no request can make any more. A log that no program reads costs lines, nothing else.
    pub(super) fn write(&self, format: Format, out: &mut impl Write) {
        let mut text = Vec::new();
        while let Ok(first) = self.waiting.recv() {
            let mut next = Some(first);
            let mut ended = None;
            while let Some(line) = next.take() {
                match line {
                    Waiting::Line(record) => format.write(&mut text, &record),
                    Waiting::End(written) => ended = Some(written),
                }
                if ended.is_none() && text.len() < WRITE_BYTES {
                    next = self.waiting.try_recv().ok();
                }
            }
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                format.write_dropped(&mut text, dropped);
            }
            let _ = out.write_all(&text);
            text.clear();
            match ended {
                // The one that waits may have given up.
                Some(written) => drop(written.try_send(())),
                None => std::thread::sleep(GATHER),
            }
        }
    }

    /// How many lines wait.
    #[cfg(test)]
    pub(super) fn take_all(&self) -> usize {
        self.waiting.try_iter().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::access_log::line::AccessLine;

    #[test]
    fn what_finds_no_room_is_counted_and_said() {
        let (queue, written) = queue();
        (0..WAITING + 7).for_each(|_| drop(AccessLine::new(queue.clone(), None)));
        drop(queue);
        let mut out = Vec::new();
        written.write(Format::Json, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("\"message\":\"access\"").count(), WAITING);
        assert_eq!(text.matches("\"dropped\":7").count(), 1);
        assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    }
}
