//! Processes that this one has started, and those that it has inherited. As process 1 of a container it becomes the parent of
//! every process whose own parent has ended, and the kernel keeps their entries until this one reaps them.

use rustc_hash::FxHashSet;
use rustix::process::{Pid, WaitId, WaitIdOptions, child_subreaper, getpid, waitid};
use std::io;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use tokio::signal::unix::{SignalKind, signal};

/// Processes that this one has started and whose exit status it will ask for. Others must not take it.
static STARTED: LazyLock<Mutex<FxHashSet<u32>>> = LazyLock::new(Mutex::default);

/// A process that this one has started, until its exit status is known.
#[derive(Debug)]
pub(crate) struct Started(u32);

impl Drop for Started {
    fn drop(&mut self) {
        lock().remove(&self.0);
    }
}

/// Starts a process, and keeps its exit status for the caller for as long as the second value lives. `id` returns its number.
pub(crate) fn start<C>(
    spawn: impl FnOnce() -> io::Result<C>,
    id: impl FnOnce(&C) -> Option<u32>,
) -> io::Result<(C, Option<Started>)> {
    // Locked meanwhile: a process that cannot run its program ends at once, and the standard library asks for its status.
    let mut started = lock();
    let child = spawn()?;
    let started = id(&child).map(|id| {
        started.insert(id);
        Started(id)
    });
    Ok((child, started))
}

fn lock() -> MutexGuard<'static, FxHashSet<u32>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reaps inherited processes while it runs; returns at once if none are inherited. Ends with the runtime.
pub(crate) async fn reap() {
    if !inherits() {
        return;
    }
    // An error leaves entries of ended processes, which cost a number each.
    let Ok(mut ends) = signal(SignalKind::child()) else { return };
    loop {
        let reaped = tokio::task::spawn_blocking(reap_inherited).await.unwrap_or(0);
        if reaped > 0 {
            tracing::debug!("{reaped} processes have ended that had lost their parents");
        }
        if ends.recv().await.is_none() {
            return;
        }
    }
}

/// Whether the kernel makes this process the parent of those that lose theirs.
fn inherits() -> bool {
    getpid().is_init() || child_subreaper().is_ok_and(|pid| pid.is_some())
}

fn reap_inherited() -> usize {
    let started = lock();
    reap_all(|id| started.contains(&id))
}

/// Reaps every child that has ended and was not started by this process, and returns how many that were.
fn reap_all(was_started: impl Fn(u32) -> bool) -> usize {
    let ended = |id: &u32| {
        let id = i32::try_from(*id).ok().and_then(Pid::from_raw)?;
        waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOHANG).ok().flatten()
    };
    dead_children().filter(|id| !was_started(*id)).filter(|id| ended(id).is_some()).count()
}

/// Children of this process that have ended and wait to be reaped.
fn dead_children() -> impl Iterator<Item = u32> {
    let parent = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |id| is_dead_child(*id, parent))
}

fn is_dead_child(id: u32, parent: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { return false };
    // The name in parentheses may hold anything; behind it are the state and the parent.
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut fields = rest.split_whitespace();
    fields.next() == Some("Z") && fields.next().and_then(|field| field.parse().ok()) == Some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    fn run(program: &str) -> io::Result<(Child, Option<Started>)> {
        start(|| Command::new(program).spawn(), |child| Some(child.id()))
    }

    fn wait_for_end(child: &Child) {
        let begun = Instant::now();
        while !is_dead_child(child.id(), std::process::id()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not end");
            std::thread::yield_now();
        }
    }

    // Other tests of this process start children too: each of these tests reaps one child at most.
    #[test]
    fn the_status_of_a_child_that_was_started_is_kept() {
        let (mut own, started) = run("true").unwrap();
        wait_for_end(&own);
        assert_eq!(reap_all(|id| id != own.id() || lock().contains(&id)), 0);
        assert!(own.wait().unwrap().success());
        drop(started);
        assert!(!lock().contains(&own.id()));
        assert!(run("/no/such/program").is_err());
    }

    #[test]
    fn an_inherited_child_is_reaped() {
        let inherited = Command::new("false").spawn().unwrap();
        wait_for_end(&inherited);
        assert_eq!(reap_all(|id| id != inherited.id()), 1);
        assert!(!is_dead_child(inherited.id(), std::process::id()));
    }
}
