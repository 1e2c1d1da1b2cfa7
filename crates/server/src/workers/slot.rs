//! One replica that should exist, and the worker that is to be it.

use crate::link::front::link::Link;
use crate::workers::backends::agents::At;
use crate::workers::placement::plan::Assignment;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::ReplicaId;
use jitney_core::supervisor::event::Cause;
use jitney_core::supervisor::worker_life::WorkerLife;
use jitney_core::time::Time;
use std::time::Duration;

/// No worker has this number.
const NOBODY: ReplicaId = ReplicaId(u32::MAX);

/// One slot for a worker, with the worker that is in it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) life: WorkerLife,
    /// The target that its workers import.
    pub(crate) target: usize,
    /// The replica that its workers are; `None` until the targets have been imported.
    pub(crate) assignment: Option<Assignment>,
    /// The number of the worker that was started last.
    pub(crate) worker: ReplicaId,
    /// The name of this worker between the front, its agent and itself; empty if none was started.
    pub(crate) id: String,
    /// Where this worker is at an agent; `None` on this machine.
    pub(crate) at: Option<At>,
    /// What the next worker waits for, in words that every client may read.
    pub(crate) waits_for: Option<String>,
    /// The share of the cores with which this worker was started.
    pub(crate) cpu_threads: u32,
    /// Whether this worker has been started and has not exited.
    pub(crate) is_running: bool,
    /// Workers that were started in it.
    pub(crate) starts: u64,
    /// How long its last worker took from then until it was ready.
    pub(crate) load: Option<Duration>,
    /// When its current worker was asked for first; `None` once it is ready.
    pub(crate) asked: Option<Time>,
    /// Fewer replicas are needed: the slot is removed when its worker has ended.
    pub(crate) is_surplus: bool,
    pub(crate) link: Option<Link>,
    /// Whether this worker has connected.
    pub(crate) has_connected: bool,
    /// How its process ended.
    pub(crate) exited: Option<Loss>,
    /// Its process has ended, but what it sent before may arrive until then.
    pub(crate) last_messages_until: Option<Time>,
    pub(crate) failure: Option<WorkerFailure>,
    /// Workers that were lost in it, and why the last one was.
    pub(crate) losses: u64,
    pub(crate) last_loss: Option<String>,
    /// The requests of the batch for which it is taken for a hang.
    pub(crate) hung_requests: Vec<Box<str>>,
}

/// Why a worker cannot serve.
#[derive(Clone, Debug)]
pub(crate) struct WorkerFailure {
    pub(crate) cause: Cause,
    pub(crate) text: String,
    /// Whether the worker reported it, which says more than how its process ended.
    pub(crate) is_reported: bool,
}

impl Slot {
    /// Its deployment and replica, as fields of the log; `None` until they are known.
    pub(crate) fn names(&self) -> (Option<&str>, Option<u32>) {
        let assignment = self.assignment.as_ref();
        (assignment.map(|assignment| &*assignment.deployment), assignment.map(|assignment| assignment.replica))
    }

    /// A slot whose first worker is to be started now, and may take this long to load. `renews`: see `WorkerLife`.
    pub(crate) fn new(target: usize, assignment: Option<Assignment>, load_timeout: Duration, renews: bool) -> Slot {
        Slot {
            life: WorkerLife::new(load_timeout, renews),
            target,
            assignment,
            worker: NOBODY,
            id: String::new(),
            at: None,
            waits_for: None,
            cpu_threads: 0,
            is_running: false,
            starts: 0,
            load: None,
            asked: None,
            is_surplus: false,
            link: None,
            has_connected: false,
            exited: None,
            last_messages_until: None,
            failure: None,
            losses: 0,
            last_loss: None,
            hung_requests: Vec::new(),
        }
    }

    /// A worker is started in it.
    pub(crate) fn begin(&mut self, worker: ReplicaId, id: String, cpu_threads: u32, at: Option<At>) {
        (self.worker, self.cpu_threads, self.is_running) = (worker, cpu_threads, true);
        (self.id, self.at, self.waits_for) = (id, at, None);
        (self.link, self.has_connected) = (None, false);
        self.starts += 1;
        (self.exited, self.last_messages_until) = (None, None);
        self.hung_requests.clear();
        if let Some(failure) = &mut self.failure {
            failure.is_reported = false; // It is of the worker before.
        }
    }

    /// Whether it is a replica of this deployment.
    pub(crate) fn is_of(&self, deployment: &str) -> bool {
        self.assignment.as_ref().is_some_and(|assignment| assignment.deployment == deployment)
    }

    /// For how many seconds more its worker may come back before another one is started; 0 if it is not away.
    pub(crate) fn away_s(&self, now: Time) -> u64 {
        self.life.away_until().map_or(0, |until| (until - now).as_secs_f64().ceil() as u64)
    }

    /// Its state, as `jitney_replicas` has it.
    pub(crate) fn state(&self) -> &'static str {
        match &self.life {
            life if life.is_up() && life.is_leaving() => "leaving",
            life if life.is_up() => "ready",
            life if life.is_starting() && self.has_connected => "loading",
            life if life.is_starting() => "starting",
            life if life.is_dying() => "dying",
            life if life.awaits_change() => "awaiting_change",
            life if life.is_given_up() => "given_up",
            life if life.is_vacant() && self.waits_for.is_some() => "waiting",
            life if life.is_vacant() => "backing_off",
            _ => "away",
        }
    }

    /// Whether its replica gets batches. A worker that is being ended still exists, but its replica gets none.
    pub(crate) fn is_serving(&self) -> bool {
        self.life.is_up() && !self.life.is_leaving()
    }

    /// Takes note of why its worker cannot serve, unless the worker itself has reported that before.
    pub(crate) fn fail(&mut self, failure: WorkerFailure) {
        if failure.is_reported || !self.failure.as_ref().is_some_and(|known| known.is_reported) {
            self.failure = Some(failure);
        }
    }

    /// Why its worker ended, in words. A batch of its deployment may take `batch_timeout_s`.
    pub(crate) fn why(&self, cause: Cause, batch_timeout_s: f64) -> String {
        let limit = self.life.load_timeout().as_secs_f64();
        match (cause, &self.assignment) {
            (Cause::LoadTimeout, Some(_)) => {
                format!("it did not load within load_timeout_s = {limit}; the log shows where its threads were")
            }
            (Cause::LoadTimeout, None) => format!("its target was not imported within {limit} s"),
            (Cause::Hung, _) => format!(
                "a batch ran for longer than batch_timeout_s = {batch_timeout_s}; the log shows where its threads were"
            ),
            _ => self.failure.as_ref().map_or_else(|| cause.label().into(), |failure| failure.text.clone()),
        }
    }
}
