//! Starts worker processes and ends them. All are started by one thread that lives as long as the server, because
//! the kernel's parent-death signal follows the thread that started a child.

use crate::report::Report;
use jitney_core::request::ReplicaId;
use jitney_core::scheduler::Loss;
use rustix::process::{Pid, Signal};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// How to start one worker.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The number by which it will introduce itself.
    pub worker: ReplicaId,
    /// The interpreter.
    pub python: String,
    /// What it reads from its environment (JSON).
    pub spec: String,
}

/// A handle to the thread that starts workers.
#[derive(Clone, Debug)]
pub struct Spawner {
    launches: std::sync::mpsc::Sender<Launch>,
}

impl Spawner {
    /// Starts the thread. Must be called within a tokio runtime, which will wait for the children.
    pub fn start(reports: mpsc::UnboundedSender<Report>) -> std::io::Result<Spawner> {
        let (launches, queue) = std::sync::mpsc::channel::<Launch>();
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new().name("jitney-spawn".into()).spawn(move || {
            let _entered = runtime.enter();
            for launch in queue {
                let worker = launch.worker;
                match spawn(&launch) {
                    Ok(child) => {
                        report(&reports, Report::Spawned(worker, child.id()));
                        runtime.spawn(watch(child, worker, reports.clone()));
                    }
                    Err(error) => {
                        let why = format!("{} cannot be started: {error}", launch.python);
                        report(&reports, Report::Exited(worker, why, Loss::Crashed));
                    }
                }
            }
        })?;
        Ok(Spawner { launches })
    }

    /// Starts a worker; what becomes of it is reported.
    pub fn launch(&self, launch: Launch) {
        // The thread lives as long as any handle.
        let _ = self.launches.send(launch);
    }
}

/// glibc gives the memory of large objects back to the kernel as soon as they are freed, and each request with a large
/// body then pays for fresh pages: a tenth of its time at 1 MB. So much may stay with a worker instead.
const MALLOC: [(&str, &str); 2] = [("MALLOC_MMAP_THRESHOLD_", "33554432"), ("MALLOC_TRIM_THRESHOLD_", "67108864")];

fn spawn(launch: &Launch) -> std::io::Result<Child> {
    // The user's own settings win.
    let malloc = MALLOC.into_iter().filter(|(name, _)| std::env::var_os(name).is_none());
    Command::new(&launch.python)
        // `-P`: a file in the working directory that is called `json.py` or `jitney.py` is not what the worker means.
        .args(["-P", "-m", "jitney.worker"])
        .envs(malloc)
        .env("JITNEY_WORKER_SPEC", &launch.spec)
        .env("PYTHONUNBUFFERED", "1")
        // Models have no business with the keys of clients. A program that holds the engine may have them all the same.
        .env_remove("JITNEY_API_KEYS")
        .stdin(Stdio::null())
        // A group of its own: Ctrl-C does not reach it, and whatever the model forks dies with it.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

async fn watch(mut child: Child, worker: ReplicaId, reports: mpsc::UnboundedSender<Report>) {
    let group = child.id();
    let (ended, loss) = match child.wait().await {
        Ok(status) if status.signal() == Some(Signal::KILL.as_raw()) => (status.to_string(), Loss::Killed),
        Ok(status) => (status.to_string(), Loss::Crashed),
        Err(error) => (format!("its end cannot be seen: {error}"), Loss::Killed),
    };
    // What the model forked goes too; it may hold the link open. The number of the process itself is free by now.
    if let Some(group) = group.and_then(number) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    report(&reports, Report::Exited(worker, ended, loss));
}

/// Kills a worker that has not been waited for, with everything that it has started.
pub fn kill_group(pid: u32) {
    if let Some(pid) = number(pid) {
        // It may be gone already.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        // A model may have taken it to another group (`setpgid`).
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// Whether this process is a worker, or what one has started: workers are children that lead groups of their own.
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

fn number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

fn report(reports: &mpsc::UnboundedSender<Report>, message: Report) {
    // Without a supervisor the server is going down; its children die with it.
    let _ = reports.send(message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    #[test]
    fn a_worker_is_killed_in_whichever_group_it_is() {
        let (own, ours) = (0, rustix::process::getpgrp().as_raw_nonzero().get());
        for group in [own, ours] {
            let mut child = std::process::Command::new("sleep").arg("60").process_group(group).spawn().unwrap();
            kill_group(child.id());
            assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()), "group {group}");
        }
    }

    #[test]
    fn a_worker_and_what_it_starts_are_told_from_strangers() {
        use std::io::{BufRead, BufReader};
        // A shell that leads a group, as workers do, and says the number of what it has started.
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "sleep 60 & echo $!; wait"]).process_group(0).stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started: i32 = line.trim().parse().unwrap();
        let [own, worker] = [std::process::id(), shell.id()].map(|pid| i32::try_from(pid).unwrap());
        assert!(belongs_to_a_worker(worker) && belongs_to_a_worker(started));
        assert!(!belongs_to_a_worker(own) && !belongs_to_a_worker(1) && !belongs_to_a_worker(0));
        kill_group(shell.id());
        shell.wait().unwrap();
    }
}
