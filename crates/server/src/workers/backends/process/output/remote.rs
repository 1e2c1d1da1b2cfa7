//! What workers of other machines print: written to the output of this process by one thread.

use crate::workers::backends::backend::WorkerLog;
use crate::workers::backends::process::output::writing::{Stream, Writing};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Bytes of output that wait to be written. If the output of this process is read too slowly, further ones are dropped.
const MOST_WAITING: usize = 4 << 20;
/// Each piece counts as at least so many bytes: workers send what one read brought.
const LEAST_PIECE: usize = 16 << 10;

/// Writes what workers of other machines print.
#[derive(Debug)]
pub(crate) struct RemoteOutput {
    said: Sender<Said>,
    /// Bytes of output that wait.
    waiting: Arc<AtomicUsize>,
    /// Lines that were dropped since the last piece that was not.
    dropped: usize,
}

/// What is to be written next.
#[derive(Debug)]
enum Said {
    /// A worker begins, or is known better: its name, its target or its replica, its machine.
    Begin(String, String, String),
    /// It printed lines.
    Lines(String, Stream, String),
    /// It has ended.
    End(String),
}

impl RemoteOutput {
    /// Starts the thread.
    pub(crate) fn start(log: WorkerLog) -> std::io::Result<RemoteOutput> {
        RemoteOutput::start_with(log, Stream::write)
    }

    fn start_with(log: WorkerLog, sink: impl Fn(Stream, &[u8]) + Send + 'static) -> std::io::Result<RemoteOutput> {
        let ((said, queue), waiting) = (channel(), Arc::new(AtomicUsize::new(0)));
        let waits = waiting.clone();
        std::thread::Builder::new().name("jitney-output".into()).spawn(move || write(&queue, &waits, log, sink))?;
        Ok(RemoteOutput { said, waiting, dropped: 0 })
    }

    /// A worker begins on this machine; `who` is its target, or its replica as soon as that is known.
    pub(crate) fn begin(&mut self, id: &str, who: &str, host: &str) {
        self.send(Said::Begin(id.to_owned(), who.to_owned(), host.to_owned()));
    }

    /// It printed these lines.
    pub(crate) fn print(&mut self, id: String, is_stdout: bool, lines: String) {
        let size = size(&lines);
        if self.waiting.load(Ordering::Relaxed) + size > MOST_WAITING {
            self.dropped += lines.lines().count();
            return;
        }
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            tracing::warn!(
                "{dropped} lines of workers on other machines were dropped: what this server prints is read too slowly"
            );
        }
        self.waiting.fetch_add(size, Ordering::Relaxed);
        let stream = if is_stdout { Stream::Stdout } else { Stream::Stderr };
        self.send(Said::Lines(id, stream, lines));
    }

    /// It has ended.
    pub(crate) fn end(&mut self, id: &str) {
        self.send(Said::End(id.to_owned()));
    }

    /// Names are never dropped: there are few, and lines without one could be those of any worker.
    fn send(&mut self, said: Said) {
        // The thread lives as long as this sender.
        let _ = self.said.send(said);
    }
}

/// What lines count while they wait.
fn size(lines: &str) -> usize {
    lines.len().max(LEAST_PIECE)
}

fn write(queue: &Receiver<Said>, held: &AtomicUsize, log: WorkerLog, sink: impl Fn(Stream, &[u8])) {
    let mut workers: HashMap<String, Writing> = HashMap::new();
    for said in queue {
        match said {
            Said::Begin(id, target, host) => drop(workers.insert(id, Writing::of(target, host, log))),
            Said::End(id) => drop(workers.remove(&id)),
            Said::Lines(id, stream, lines) => {
                let mut unknown = Writing::new("worker".into(), log);
                let writing = workers.get_mut(&id).unwrap_or(&mut unknown);
                let mut out = Vec::new();
                lines.lines().for_each(|line| writing.write(&mut out, stream, line.as_bytes()));
                sink(stream, &out);
                held.fetch_sub(size(&lines), Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_worker_that_begins_while_the_output_is_not_read_keeps_its_name() {
        let (printed, read) = channel();
        let is_read = Arc::new(Mutex::new(()));
        let (gate, printed) = (is_read.clone(), Mutex::new(printed));
        let blocked = is_read.lock().unwrap();
        let sink = move |_, lines: &[u8]| {
            drop(gate.lock().unwrap());
            printed.lock().unwrap().send(String::from_utf8(lines.to_vec()).unwrap()).unwrap();
        };
        let mut output = RemoteOutput::start_with(WorkerLog::Text, sink).unwrap();
        output.begin("w1", "a/0", "here");
        let pieces = MOST_WAITING / LEAST_PIECE;
        for _ in 0..pieces + 10 {
            output.print("w1".into(), true, "1\n2\n".into());
        }
        assert_eq!(output.dropped, 20, "lines");
        output.print("w1".into(), true, "x\n".repeat(MOST_WAITING));
        assert_eq!(output.dropped, 20 + MOST_WAITING, "bytes count");
        output.begin("w2", "m.py", "there");
        output.begin("w2", "b/7", "there");
        output.end("w1");
        drop(blocked);
        for _ in 0..pieces {
            assert_eq!(read.recv().unwrap(), "a/0@here | 1\na/0@here | 2\n");
        }
        output.print("w2".into(), true, "x\n".into());
        output.print("w1".into(), true, "y\n".into());
        assert_eq!((read.recv().unwrap(), output.dropped), ("b/7@there | x\n".into(), 0));
        assert_eq!(read.recv().unwrap(), "worker | y\n", "it has ended");
    }
}
