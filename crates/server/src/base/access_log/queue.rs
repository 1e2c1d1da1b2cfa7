//! Where lines wait until they are written: a bounded queue, and the thread that empties it.

use crate::base::access_log::record::{Format, Record};
use std::io::{Error, ErrorKind, Write};
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
    /// Writes lines until no request can make any more. A log that no program reads, or that has no room, costs lines, nothing
    /// else.
    pub(super) fn write(&self, format: Format, out: &mut impl Write) {
        let mut text = Vec::new();
        let (mut is_cut, mut error) = (false, None);
        while let Ok(first) = self.waiting.recv() {
            // The rest of a line that was cut is lost; the next one is not put behind it.
            if is_cut {
                text.push(b'\n');
            }
            let lines_from = text.len();
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
            let lines_to = text.len();
            if dropped > 0 {
                format.write_dropped(&mut text, dropped, error.as_ref());
            }
            let (written, failure) = write_most(out, &text);
            if failure.is_some() {
                let missing = text.get(written.max(lines_from)..lines_to).unwrap_or_default();
                let lost = missing.split(|byte| *byte == b'\n').count() as u64 - 1;
                // The last line says what was lost before. If it is lost too, the next one says that.
                self.dropped.fetch_add(lost + dropped, Ordering::Relaxed);
                error = failure;
            } else if dropped > 0 {
                error = None;
            }
            if let Some(last) = text[..written].last() {
                is_cut = *last != b'\n';
            }
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

/// Writes as much as there is room for: how many bytes that were, and why it was not everything.
fn write_most(out: &mut impl Write, text: &[u8]) -> (usize, Option<Error>) {
    let mut written = 0;
    while written < text.len() {
        match out.write(&text[written..]) {
            Ok(0) => return (written, Some(ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (written, Some(error)),
        }
    }
    (written, None)
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

    /// Has room for one line and a half, is full for two writes, and has room again.
    #[derive(Default)]
    struct Disk {
        writes: usize,
        text: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.writes += 1;
            let more = match self.writes {
                1 => text.iter().position(|byte| *byte == b'\n').unwrap() + 10,
                2 | 3 => return Err(ErrorKind::StorageFull.into()),
                _ => text.len(),
            };
            self.text.extend_from_slice(&text[..more]);
            Ok(more)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_counted_and_said() {
        let (queue, written) = queue();
        // Each end is the end of one write: two lines of the first one are lost, and all of the second one.
        for lines in [3, 2, 1, 1] {
            (0..lines).for_each(|_| drop(AccessLine::new(queue.clone(), None)));
            queue.waiting.try_send(Waiting::End(sync_channel(1).0)).unwrap();
        }
        drop(queue);
        let mut disk = Disk::default();
        written.write(Format::Json, &mut disk);
        let text = String::from_utf8(disk.text).unwrap();
        let messages: Vec<_> = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).ok()).collect();
        let messages: Vec<_> =
            messages.iter().map(|line| line.as_ref().and_then(|line| line["message"].as_str())).collect();
        let full = std::io::Error::from(ErrorKind::StorageFull);
        let lost = format!("the access log lost 4 lines, because they could not be written: {full}");
        assert_eq!(messages, [Some("access"), None, Some("access"), Some(&lost), Some("access")], "{text}");
        assert!(text.contains("\"dropped\":4") && text.ends_with('\n'));
    }
}
