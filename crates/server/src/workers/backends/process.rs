//! Workers as processes of this machine. All are started by one thread that lives as long as the server, because the
//! kernel's parent-death signal follows the thread that started a child.

mod output;

/// Where what workers print goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Printing {
    /// To the output of this process, in the format of its log.
    Here(WorkerLog),
    /// To the front, as events.
    Front,
}

use crate::link::front::worker_event::WorkerEvent;
use crate::workers::backends::backend::WorkerLog;
use crate::workers::backends::backend::{Backend, WorkerSpec};
use crate::workers::backends::children;
use crate::workers::backends::children::Started;
use crate::workers::backends::process::output::relay;
use crate::workers::backends::process::output::relay::{Relayed, Relays};
pub(crate) use crate::workers::backends::process::output::remote::RemoteOutput;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::ReplicaId;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::collections::HashMap;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// A worker gets this long to write where its threads are, before it is killed.
const STACKS_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });
/// How often the file is looked at. It is complete when it has not grown since the last look.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// So much of it is logged.
const MOST_STACK_BYTES: u64 = 64 << 10;
/// At its end the server waits this long for what workers printed last.
const LAST_OUTPUT: Duration = Duration::from_secs(1);
/// The end of a worker is reported to the front after what the worker printed last, but not later than this. What a model started may
/// hold its streams open.
const LAST_LINES: Duration = Duration::from_millis(500);
/// The thread that waits for a worker's end does next to nothing.
const STACK_BYTES: usize = 128 << 10;

/// Starts worker processes, waits for their ends, and kills them.
#[derive(Debug)]
pub struct Processes {
    starts: std::sync::mpsc::Sender<(ReplicaId, WorkerSpec)>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    python: String,
    /// Where workers write their stacks.
    folder: PathBuf,
    events: mpsc::UnboundedSender<WorkerEvent>,
    alive: Mutex<Alive>,
    printing: Printing,
    relays: Arc<Relays>,
}

/// Processes that have not been reaped. Until then the kernel gives their process ids to no other process.
#[derive(Debug, Default)]
struct Alive {
    processes: HashMap<ReplicaId, Process>,
    is_closed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Process {
    /// Not started yet.
    Starting,
    /// Not started yet, and to be killed.
    Unwanted,
    Running(Pid),
}

impl Processes {
    /// Starts the thread that starts workers, which are run by the interpreter `python`. What they write before they are killed
    /// is in `folder`.
    pub fn start(
        python: String,
        folder: PathBuf,
        events: mpsc::UnboundedSender<WorkerEvent>,
        printing: Printing,
    ) -> std::io::Result<Processes> {
        let (starts, queue) = std::sync::mpsc::channel();
        let shared =
            Arc::new(Shared { python, folder, events, alive: Mutex::default(), printing, relays: Arc::default() });
        let starter = shared.clone();
        std::thread::Builder::new().name("jitney-spawn".into()).spawn(move || {
            for (worker, spec) in queue {
                launch(&starter, worker, &spec);
            }
        })?;
        Ok(Processes { starts, shared })
    }
}

impl Backend for Processes {
    fn start(&self, worker: ReplicaId, spec: WorkerSpec) {
        self.shared.alive().processes.insert(worker, Process::Starting);
        // The thread lives as long as this sender.
        let _ = self.starts.send((worker, spec));
    }

    fn kill(&self, worker: ReplicaId) {
        self.shared.kill(worker);
    }

    fn pid(&self, worker: ReplicaId) -> Option<u32> {
        match self.shared.alive().processes.get(&worker) {
            Some(Process::Running(pid)) => u32::try_from(pid.as_raw_nonzero().get()).ok(),
            _ => None,
        }
    }

    fn kill_with_stacks(&self, worker: ReplicaId) {
        if let Some(Process::Running(pid)) = self.shared.alive().processes.get(&worker) {
            // The handler is not Python code: it writes the stacks whatever the interpreter is doing.
            let _ = rustix::process::kill_process(*pid, Signal::QUIT);
        }
        let shared = self.shared.clone();
        tokio::spawn(async move {
            shared.wait_for_stacks(worker).await;
            let stacks = read_start(&shared.stacks_file(worker)).unwrap_or_default();
            if !stacks.is_empty() {
                shared.report(WorkerEvent::Stacks(worker, stacks));
            }
            shared.kill(worker);
        });
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let mut alive = self.shared.alive();
        alive.is_closed = true;
        for process in alive.processes.values() {
            if let Process::Running(pid) = process {
                kill_group(*pid);
            }
        }
        drop(alive);
        self.shared.relays.wait(LAST_OUTPUT);
    }
}

impl Shared {
    fn alive(&self) -> MutexGuard<'_, Alive> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a worker has written its stacks, or until it has had enough time for that.
    async fn wait_for_stacks(&self, worker: ReplicaId) {
        let looks = STACKS_WITHIN.as_millis() / LOOK_EVERY.as_millis();
        let mut bytes = 0;
        for _ in 0..looks {
            tokio::time::sleep(LOOK_EVERY).await;
            let before = bytes;
            bytes = std::fs::metadata(self.stacks_file(worker)).map_or(0, |file| file.len());
            if bytes > 0 && bytes == before {
                return;
            }
        }
    }

    /// The file into which a worker writes the stacks of its threads.
    fn stacks_file(&self, worker: ReplicaId) -> PathBuf {
        self.folder.join(format!("stacks-{}", worker.0))
    }

    fn kill(&self, worker: ReplicaId) {
        match self.alive().processes.get_mut(&worker) {
            Some(Process::Running(pid)) => kill_group(*pid),
            Some(process) => *process = Process::Unwanted,
            None => {}
        }
    }

    fn report(&self, event: WorkerEvent) {
        // Without a supervisor the server is going down; its children die with it.
        let _ = self.events.send(event);
    }
}

fn launch(shared: &Arc<Shared>, worker: ReplicaId, spec: &WorkerSpec) {
    let not_started = |why: String, loss| {
        shared.alive().processes.remove(&worker);
        shared.report(WorkerEvent::Exited(worker, why, loss));
    };
    if matches!(shared.alive().processes.get(&worker), Some(Process::Unwanted)) {
        return not_started("it was not wanted any more".into(), Loss::Killed);
    }
    let (mut child, started) = match spawn(&shared.python, spec, &shared.stacks_file(worker)) {
        Ok(spawned) => spawned,
        Err(error) => return not_started(format!("{} cannot be started: {error}", shared.python), Loss::Crashed),
    };
    let pid = Pid::from_child(&child);
    let mut alive = shared.alive();
    if alive.is_closed || matches!(alive.processes.get(&worker), Some(Process::Unwanted)) {
        kill_group(pid);
    }
    alive.processes.insert(worker, Process::Running(pid));
    drop(alive);
    let printer = match shared.printing {
        Printing::Here(log) => relay::Printer::here(spec.target.clone(), log),
        Printing::Front => relay::Printer::front(worker, shared.events.clone()),
    };
    let relayed = relay::start(&shared.relays, &mut child, printer)
        .inspect_err(|error| tracing::warn!("no thread can read what a worker prints: {error}"))
        .ok();
    shared.report(WorkerEvent::Started(worker));
    let waiting = shared.clone();
    let waiter = std::thread::Builder::new().name("jitney-wait".into()).stack_size(STACK_BYTES);
    if let Err(error) = waiter.spawn(move || {
        wait(&waiting, worker, child, relayed);
        drop(started);
    }) {
        shared.kill(worker);
        not_started(format!("no thread can wait for it: {error}"), Loss::Crashed);
    }
}

/// glibc gives the memory of large objects back to the kernel as soon as they are freed, and each request with a large
/// body then pays for fresh pages: a tenth of its time at 1 MB. So much may stay with a worker instead.
const MALLOC: [(&str, &str); 2] = [("MALLOC_MMAP_THRESHOLD_", "33554432"), ("MALLOC_TRIM_THRESHOLD_", "67108864")];

fn spawn(python: &str, spec: &WorkerSpec, stacks: &Path) -> std::io::Result<(Child, Option<Started>)> {
    let mut text = serde_json::to_value(spec)?;
    text["parent"] = std::process::id().into();
    text["stacks"] = stacks.to_string_lossy().into();
    text["is_relayed"] = true.into();
    // The user's own settings win.
    let malloc = MALLOC.into_iter().filter(|(name, _)| std::env::var_os(name).is_none());
    let mut command = Command::new(python);
    command
        // `-P`: a file in the working directory that is called `json.py` or `jitney.py` is not what the worker means.
        .args(["-P", "-m", "jitney.worker"])
        .envs(malloc)
        .envs(spec.variables.iter().map(|(name, value)| (name, value)))
        .env("JITNEY_WORKER_SPEC", text.to_string())
        .env("PYTHONUNBUFFERED", "1")
        // Models have no business with the keys of clients. A program that holds the engine may have them all the same.
        .env_remove("JITNEY_API_KEYS")
        // The service manager listens to the front alone.
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        .env_remove("WATCHDOG_PID")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A separate process group: Ctrl-C does not reach it, and all processes that the model forks are killed with
        // it.
        .process_group(0);
    children::start(|| command.spawn(), |child| Some(child.id()))
}

/// Waits for the end of a worker, ends what it has started, and reports it.
fn wait(shared: &Shared, worker: ReplicaId, mut child: Child, relayed: Option<Relayed>) {
    let pid = Pid::from_child(&child);
    // A process that has ended keeps its number, which is also that of its group, until it is reaped.
    let ended = wait_without_reaping(pid);
    let mut alive = shared.alive();
    if ended.is_ok() {
        // What the model forked goes too; it may hold the link open.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    alive.processes.remove(&worker);
    // The file exists only if the worker was asked for its stacks.
    let _ = std::fs::remove_file(shared.stacks_file(worker));
    let status = child.wait();
    drop(alive);
    let (how, loss) = match status {
        Ok(status) => (status.to_string(), loss(status)),
        Err(error) => (format!("its end cannot be seen: {error}"), Loss::Killed),
    };
    // The front knows a worker until its end is reported.
    if let (Printing::Front, Some(relayed)) = (shared.printing, relayed) {
        let _ = relayed.recv_timeout(LAST_LINES);
    }
    shared.report(WorkerEvent::Exited(worker, how, loss));
}

/// The beginning of a text file.
fn read_start(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MOST_STACK_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn wait_without_reaping(pid: Pid) -> Result<(), Errno> {
    loop {
        match rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(Errno::INTR) => {}
            ended => return ended.map(drop),
        }
    }
}

fn loss(status: ExitStatus) -> Loss {
    if status.signal() == Some(Signal::KILL.as_raw()) { Loss::Killed } else { Loss::Crashed }
}

/// Kills a process that has not been reaped, with everything that it has started.
fn kill_group(pid: Pid) {
    // It may have ended already.
    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    // A model may have taken it to another group (`setpgid`).
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}

/// Whether this process is a worker or was started by one. A worker is a child that leads its process group.
pub fn belongs_to_a_worker(pid: i32) -> bool {
    let parent_of_leader = |(_, group): (u32, u32)| parent_and_group(&group.to_string()).map(|(parent, _)| parent);
    parent_and_group(&pid.to_string()).and_then(parent_of_leader) == Some(std::process::id())
}

/// As the kernel has them, if the process is still there. A group from outside of this container is 0, which `getpgid`
/// of rustix does not expect.
fn parent_and_group(pid: &str) -> Option<(u32, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; behind it are the state, the parent and the group.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1).map_while(|field| field.parse().ok());
    Some((fields.next()?, fields.next()?))
}

#[cfg(test)]
mod tests;
