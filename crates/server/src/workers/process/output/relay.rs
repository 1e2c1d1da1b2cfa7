//! One thread for each worker, which reads both of its streams until their end.

use crate::workers::process::output::lines::Lines;
use crate::workers::process::output::writing::{Stream, Writing};
use crate::workers::settings::WorkerLog;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A line without an end is written after this time: it may be a question, or a progress bar.
const UNFINISHED: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
/// The thread has a buffer of `READ_BYTES` on its stack, and little else.
const STACK_BYTES: usize = 256 << 10;

/// The relays that run: at its end the server waits for what workers printed last.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    running: Mutex<usize>,
    ended: Condvar,
}

impl Relays {
    /// Waits until all have ended, for this long at most: what a model started may hold its streams open.
    pub(crate) fn wait(&self, longest: Duration) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.ended.wait_timeout_while(running, longest, |running| *running > 0);
    }

    fn change(&self, change: impl FnOnce(&mut usize)) {
        change(&mut self.running.lock().unwrap_or_else(PoisonError::into_inner));
        self.ended.notify_all();
    }
}

/// Starts to relay what a worker prints. `target` names it until it says which replica it is.
pub(crate) fn start(relays: &Arc<Relays>, child: &mut Child, target: String, log: WorkerLog) -> io::Result<()> {
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else { return Ok(()) };
    let counted = relays.clone();
    let run = move || {
        let mut writing = Writing::new(target, log);
        relay(stdout, stderr, &mut writing);
        counted.change(|running| *running -= 1);
    };
    relays.change(|running| *running += 1);
    let started = std::thread::Builder::new().name("jitney-output".into()).stack_size(STACK_BYTES).spawn(run);
    started.map(drop).inspect_err(|_| relays.change(|running| *running -= 1))
}

/// One stream of a worker.
struct Source<R> {
    /// `None` after its end.
    reader: Option<R>,
    stream: Stream,
    lines: Lines,
}

impl<R: Read + AsFd> Source<R> {
    fn new(reader: R, stream: Stream) -> Source<R> {
        Source { reader: Some(reader), stream, lines: Lines::default() }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.reader.as_ref().map(AsFd::as_fd)
    }

    /// Reads what is there, and writes the lines that are whole.
    fn read(&mut self, writing: &mut Writing) {
        let mut bytes = [0; READ_BYTES];
        let read = self.reader.as_mut().map_or(Ok(0), |reader| reader.read(&mut bytes));
        let mut out = Vec::new();
        let mut each = |line: &[u8]| writing.write(&mut out, self.stream, line);
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(length) if length > 0 => self.lines.push(&bytes[..length], each),
            _ => {
                self.reader = None;
                if self.lines.is_unfinished() {
                    self.lines.finish(&mut each);
                }
            }
        }
        self.stream.write(&out);
    }

    /// Writes a line that has no end.
    fn write_unfinished(&mut self, writing: &mut Writing) {
        if self.lines.is_unfinished() {
            let mut out = Vec::new();
            self.lines.finish(&mut |line: &[u8]| writing.write(&mut out, self.stream, line));
            self.stream.write(&out);
        }
    }
}

impl Stream {
    /// Writes whole lines: no line of another worker comes between. If nothing reads
    /// the stream, the worker waits when it prints.
    fn write(self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        let _ = match self {
            Stream::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines).and_then(|()| stdout.flush())
            }
            Stream::Stderr => io::stderr().lock().write_all(lines),
        };
    }
}

fn relay(stdout: impl Read + AsFd, stderr: impl Read + AsFd, writing: &mut Writing) {
    let (mut stdout, mut stderr) = (Source::new(stdout, Stream::Stdout), Source::new(stderr, Stream::Stderr));
    loop {
        let is_unfinished = stdout.lines.is_unfinished() || stderr.lines.is_unfinished();
        let ready = wait(stdout.descriptor(), stderr.descriptor(), is_unfinished.then_some(&UNFINISHED));
        match ready {
            None => return,
            Some((false, false)) => {
                stdout.write_unfinished(writing);
                stderr.write_unfinished(writing);
            }
            Some((out, err)) => {
                // First what says the name of the worker.
                if err {
                    stderr.read(writing);
                }
                if out {
                    stdout.read(writing);
                }
            }
        }
    }
}

/// Waits until a stream has something, or its end; says which. `None` if both have ended.
fn wait(
    stdout: Option<BorrowedFd<'_>>,
    stderr: Option<BorrowedFd<'_>>,
    longest: Option<&Timespec>,
) -> Option<(bool, bool)> {
    let open: Vec<BorrowedFd<'_>> = stdout.into_iter().chain(stderr).collect();
    if open.is_empty() {
        return None;
    }
    let mut polled: Vec<PollFd<'_>> = open.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
    while poll(&mut polled, longest) == Err(rustix::io::Errno::INTR) {}
    let mut ready = polled.iter().map(|polled| !polled.revents().is_empty());
    let out = stdout.is_some() && ready.next().unwrap_or_default();
    Some((out, stderr.is_some() && ready.next().unwrap_or_default()))
}
