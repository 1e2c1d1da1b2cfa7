//! What workers of other machines print: written to the output of this process by one thread.

use crate::workers::backends::backend::WorkerLog;
use crate::workers::backends::process::output::writing::{Stream, Writing};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Messages that wait to be written. If the output of this process is read too slowly, further ones are dropped.
const WAITING: usize = 256;

/// Writes what workers of other machines print.
#[derive(Debug)]
pub(crate) struct RemoteOutput {
    waiting: SyncSender<Said>,
    dropped: u64,
}

/// What is to be written next.
#[derive(Debug)]
enum Said {
    /// A worker begins: its name, its target or its replica, its machine.
    Begin(String, String, String),
    /// It printed lines.
    Lines(String, Stream, String),
    /// It has ended.
    End(String),
}

impl RemoteOutput {
    /// Starts the thread.
    pub(crate) fn start(log: WorkerLog) -> std::io::Result<RemoteOutput> {
        let (waiting, queue) = sync_channel(WAITING);
        std::thread::Builder::new().name("jitney-output".into()).spawn(move || write(&queue, log))?;
        Ok(RemoteOutput { waiting, dropped: 0 })
    }

    /// A worker begins on this machine; `who` is its target, or its replica.
    pub(crate) fn begin(&mut self, id: &str, who: &str, host: &str) {
        self.send(Said::Begin(id.to_owned(), who.to_owned(), host.to_owned()));
    }

    /// It printed these lines.
    pub(crate) fn print(&mut self, id: String, is_stdout: bool, lines: String) {
        let stream = if is_stdout { Stream::Stdout } else { Stream::Stderr };
        self.send(Said::Lines(id, stream, lines));
    }

    /// It has ended.
    pub(crate) fn end(&mut self, id: &str) {
        self.send(Said::End(id.to_owned()));
    }

    fn send(&mut self, said: Said) {
        if self.waiting.try_send(said).is_err() {
            self.dropped += 1;
        } else if std::mem::take(&mut self.dropped) > 0 {
            tracing::warn!(
                "output of workers on other machines was dropped: what this server prints is read too slowly"
            );
        }
    }
}

fn write(queue: &Receiver<Said>, log: WorkerLog) {
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
                stream.write(&out);
            }
        }
    }
}
