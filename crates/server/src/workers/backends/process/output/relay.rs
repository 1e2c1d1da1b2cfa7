//! One thread for each worker, which reads both of its streams until their end.

use crate::link::front::output_room::OutputRoom;
use crate::link::front::worker_event::WorkerEvent;
use crate::workers::backends::backend::WorkerLog;
use crate::workers::backends::process::output::lines::Lines;
use crate::workers::backends::process::output::writing::{Stream, Writing};
use jitney_core::request::ReplicaId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

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

/// Where the lines of one worker go.
pub(crate) enum Printer {
    /// To the output of this process.
    Here(Writing),
    /// To the front, as far as there is room on the way to it.
    Front {
        worker: ReplicaId,
        events: mpsc::UnboundedSender<WorkerEvent>,
        room: OutputRoom,
        /// Lines for which there was no room, since the last one for which there was.
        dropped: u64,
    },
}

impl Printer {
    /// To the output of this process. `target` names the worker until it says which replica it is.
    pub(crate) fn here(target: String, log: WorkerLog) -> Printer {
        Printer::Here(Writing::new(target, log))
    }

    /// To the front.
    pub(crate) fn front(worker: ReplicaId, events: mpsc::UnboundedSender<WorkerEvent>) -> Printer {
        Printer::Front { worker, events, room: OutputRoom::default(), dropped: 0 }
    }

    /// Adds a line to those that are printed together.
    fn add(&mut self, out: &mut Vec<u8>, stream: Stream, line: &[u8]) {
        match self {
            Printer::Here(writing) => writing.write(out, stream, line),
            Printer::Front { .. } => {
                out.extend_from_slice(line);
                out.push(b'\n');
            }
        }
    }

    /// Prints whole lines.
    fn print(&mut self, stream: Stream, mut lines: Vec<u8>) {
        if lines.is_empty() {
            return;
        }
        match self {
            Printer::Here(_) => stream.write(&lines),
            Printer::Front { worker, events, room, dropped } => {
                let Some(taken) = room.take(lines.len()) else {
                    *dropped += lines.split(|&byte| byte == b'\n').count() as u64 - 1;
                    return;
                };
                if *dropped > 0 {
                    let note = format!("{} lines were dropped: the front did not take them in time\n", *dropped);
                    lines.splice(0..0, note.bytes());
                    *dropped = 0;
                }
                // Without a receiver the agent ends.
                let _ = events.send(WorkerEvent::Printed(*worker, stream == Stream::Stdout, lines, taken));
            }
        }
    }
}

/// Says when all that a worker prints has been relayed: its other end is dropped then.
pub(crate) type Relayed = std::sync::mpsc::Receiver<()>;

/// Starts to relay what a worker prints.
pub(crate) fn start(relays: &Arc<Relays>, child: &mut Child, mut printer: Printer) -> io::Result<Relayed> {
    let (relaying, relayed) = std::sync::mpsc::channel();
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else { return Ok(relayed) };
    let counted = relays.clone();
    let run = move || {
        relay(stdout, stderr, &mut printer);
        drop(relaying);
        counted.change(|running| *running -= 1);
    };
    relays.change(|running| *running += 1);
    let started = std::thread::Builder::new().name("jitney-output".into()).stack_size(STACK_BYTES).spawn(run);
    started.map(|_| relayed).inspect_err(|_| relays.change(|running| *running -= 1))
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
    fn read(&mut self, printer: &mut Printer) {
        let mut bytes = [0; READ_BYTES];
        let read = self.reader.as_mut().map_or(Ok(0), |reader| reader.read(&mut bytes));
        let mut out = Vec::new();
        let mut each = |line: &[u8]| printer.add(&mut out, self.stream, line);
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
        printer.print(self.stream, out);
    }

    /// Writes a line that has no end.
    fn write_unfinished(&mut self, printer: &mut Printer) {
        if self.lines.is_unfinished() {
            let mut out = Vec::new();
            self.lines.finish(&mut |line: &[u8]| printer.add(&mut out, self.stream, line));
            printer.print(self.stream, out);
        }
    }
}

impl Stream {
    /// Writes whole lines: no line of another worker comes between. If nothing reads
    /// the stream, the worker waits when it prints.
    pub(super) fn write(self, lines: &[u8]) {
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

fn relay(stdout: impl Read + AsFd, stderr: impl Read + AsFd, printer: &mut Printer) {
    let (mut stdout, mut stderr) = (Source::new(stdout, Stream::Stdout), Source::new(stderr, Stream::Stderr));
    loop {
        let is_unfinished = stdout.lines.is_unfinished() || stderr.lines.is_unfinished();
        let ready = wait(stdout.descriptor(), stderr.descriptor(), is_unfinished.then_some(&UNFINISHED));
        match ready {
            None => return,
            Some((false, false)) => {
                stdout.write_unfinished(printer);
                stderr.write_unfinished(printer);
            }
            Some((out, err)) => {
                // First what says the name of the worker.
                if err {
                    stderr.read(printer);
                }
                if out {
                    stdout.read(printer);
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
