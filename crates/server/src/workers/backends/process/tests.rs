//! Processes that stand in for workers are started, killed and waited for.

use super::*;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

const WORKER: ReplicaId = ReplicaId(7);
const LONG: Duration = Duration::from_secs(30);

/// A backend whose interpreter is a shell script, and what it reports.
fn backend(script: &str) -> (Processes, mpsc::UnboundedReceiver<WorkerEvent>, TempDir) {
    printing(script, Printing::Here(WorkerLog::Text))
}

fn printing(script: &str, printing: Printing) -> (Processes, mpsc::UnboundedReceiver<WorkerEvent>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("python");
    std::fs::write(&path, format!("#!/bin/sh\ncd {}\n{script}\n", folder.path().display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let (events, reported) = mpsc::unbounded_channel();
    (
        Processes::start(path.to_string_lossy().into_owned(), folder.path().into(), events, printing).unwrap(),
        reported,
        folder,
    )
}

fn spec() -> WorkerSpec {
    WorkerSpec::for_test(WORKER)
}

async fn next(reported: &mut mpsc::UnboundedReceiver<WorkerEvent>) -> WorkerEvent {
    tokio::time::timeout(LONG, reported.recv()).await.expect("an event").unwrap()
}

async fn wait_for(path: &Path) -> String {
    let there = async {
        loop {
            match std::fs::read_to_string(path) {
                Ok(text) if text.ends_with('\n') => return text,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(LONG, there).await.expect("the file is written")
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[tokio::test]
async fn a_worker_that_ends_is_reported_once_and_what_it_left_behind_is_gone() {
    let (backend, mut reported, folder) = backend("sleep 60 & echo $! > left; exit 3");
    backend.start(WORKER, spec());
    assert!(matches!(next(&mut reported).await, WorkerEvent::Started(WORKER)));
    let WorkerEvent::Exited(WORKER, how, Loss::Crashed) = next(&mut reported).await else { panic!("it exits") };
    assert_eq!(how, "exit status: 3");
    let left = wait_for(&folder.path().join("left")).await;
    while is_alive(&left) {
        tokio::task::yield_now().await;
    }
    backend.kill(WORKER);
    assert!(reported.try_recv().is_err());
}

#[tokio::test]
async fn the_last_lines_of_a_worker_are_reported_before_its_end() {
    // Each piece is as long as one read; the last one has no end, and is read when the process has ended.
    let script = "head -c 40000 /dev/zero | tr '\\0' 'x'; printf last";
    let (backend, mut reported, _folder) = printing(script, Printing::Front);
    backend.start(WORKER, spec());
    let mut printed = Vec::new();
    loop {
        match next(&mut reported).await {
            WorkerEvent::Printed(WORKER, true, lines, _) => printed.extend(lines),
            WorkerEvent::Exited(WORKER, ..) => break,
            WorkerEvent::Started(WORKER) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(printed.ends_with(b"last\n"), "{} bytes", printed.len());
}

#[tokio::test]
async fn a_worker_can_be_killed_before_it_is_there() {
    let (backend, mut reported, _folder) = backend("exec sleep 60");
    backend.start(WORKER, spec());
    backend.kill(WORKER);
    loop {
        match next(&mut reported).await {
            WorkerEvent::Started(WORKER) => {}
            WorkerEvent::Exited(WORKER, _, Loss::Killed) => return,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_worker_that_hangs_can_say_where_before_it_is_killed() {
    // A shell cannot catch a signal that was ignored when it started, as SIGQUIT is for a test that runs in the background.
    let (backend, mut reported, folder) = backend(
        "exec env --default-signal=QUIT sh -c \
         \"trap 'echo here > stacks-7' QUIT; echo go > ready; while :; do sleep 0.01; done\"",
    );
    backend.start(WORKER, spec());
    // The process may run before the backend knows its number, without which it cannot ask.
    assert!(matches!(next(&mut reported).await, WorkerEvent::Started(WORKER)));
    wait_for(&folder.path().join("ready")).await;
    backend.kill_with_stacks(WORKER);
    let WorkerEvent::Stacks(WORKER, stacks) = next(&mut reported).await else { panic!("it says where it is") };
    assert_eq!(stacks, "here\n");
    assert!(matches!(next(&mut reported).await, WorkerEvent::Exited(WORKER, _, Loss::Killed)));
    assert!(!folder.path().join("stacks-7").exists());
}

#[tokio::test]
async fn no_worker_outlives_its_backend() {
    let (backend, mut reported, folder) = backend("echo $$ > pid; exec sleep 60");
    backend.start(WORKER, spec());
    let pid = wait_for(&folder.path().join("pid")).await;
    drop(backend);
    while is_alive(&pid) {
        tokio::task::yield_now().await;
    }
    assert!(matches!(next(&mut reported).await, WorkerEvent::Started(WORKER)));
    assert!(matches!(next(&mut reported).await, WorkerEvent::Exited(WORKER, _, Loss::Killed)));
}

#[test]
fn the_number_of_a_process_is_taken_until_its_end_has_been_dealt_with() {
    let mut child = Command::new("true").process_group(0).spawn().unwrap();
    let pid = Pid::from_child(&child);
    wait_without_reaping(pid).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    assert!(stat.contains(") Z "), "{stat}");
    assert_eq!(rustix::process::kill_process_group(pid, Signal::KILL), Ok(()));
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_worker_is_killed_in_whichever_group_it_is() {
    let (own, ours) = (0, rustix::process::getpgrp().as_raw_nonzero().get());
    for group in [own, ours] {
        let mut child = Command::new("sleep").arg("60").process_group(group).spawn().unwrap();
        kill_group(Pid::from_child(&child));
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()), "group {group}");
    }
}

#[test]
fn a_worker_and_what_it_starts_are_told_from_strangers() {
    // A shell that leads a group, as workers do, and says the number of what it has started.
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 60 & echo $!; wait"]).process_group(0).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let started: i32 = line.trim().parse().unwrap();
    let [own, worker] = [std::process::id(), shell.id()].map(|pid| i32::try_from(pid).unwrap());
    assert!(belongs_to_a_worker(worker) && belongs_to_a_worker(started));
    assert!(!belongs_to_a_worker(own) && !belongs_to_a_worker(1) && !belongs_to_a_worker(0));
    kill_group(Pid::from_child(&shell));
    shell.wait().unwrap();
}
