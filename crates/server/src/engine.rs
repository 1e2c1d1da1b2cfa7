//! The engine task of one deployment: owns its scheduler, carries out its decisions. Messages in, actions out, no locks.

use crate::call::{Answer, Call, Failure, Timing, take_tokens};
use crate::clock::Clock;
use crate::deployment::Inbound;
use crate::link::front::Link;
use crate::link::results_frame::{ItemOutcome, ReceivedResults};
use crate::report::Report;
use crate::supervise::AWAY;
use crate::telemetry::Telemetry;
use jitney_core::admission::Refusal;
use jitney_core::load::Measure;
use jitney_core::metrics;
use jitney_core::outcome::Outcome;
use jitney_core::policy::CloseReason;
use jitney_core::request::ReplicaId;
use jitney_core::rules::Rules;
use jitney_core::scheduler::{Action, Asking, Ended, Launch, NewItem, Payload, Scheduler};
use jitney_core::time::Time;
use prometheus::{Gauge, Histogram, IntCounter, IntGauge};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Shorter waits are not worth a word.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// While batches run the engine wakes as often, so that it knows for how long it did not run.
const BEAT: Duration = Duration::from_secs(1);
/// Messages taken at once before decisions are made.
const MESSAGES_AT_ONCE: usize = 256;

/// An item in the engine: what to compute, and whom to tell.
#[derive(Debug)]
struct Pending {
    call: Box<Call>,
    reply: oneshot::Sender<Answer>,
}

impl Payload for Pending {
    /// Keyed at random per process, so that nobody outside can make two inputs collide.
    fn fingerprint(&self) -> u64 {
        static KEY: OnceLock<RandomState> = OnceLock::new();
        let mut hasher = KEY.get_or_init(RandomState::new).build_hasher();
        for part in &self.call.parts {
            (part.tag as u8).hash(&mut hasher);
            part.tensor.as_ref().map(|t| (t.dtype, &t.shape)).hash(&mut hasher);
            part.data.len().hash(&mut hasher);
            part.data.0.iter().for_each(|chunk| hasher.write(chunk));
        }
        hasher.finish()
    }
}

#[derive(Debug)]
struct Meters {
    queue_seconds: Histogram,
    model_seconds: Histogram,
    batch_items: Histogram,
    batches: [IntCounter; CloseReason::ALL.len()],
    batch_cost: IntCounter,
    padded_cost: IntCounter,
    queued_items: IntGauge,
    queued_bytes: IntGauge,
    lanes: IntGauge,
    running_items: IntGauge,
    ready_replicas: IntGauge,
    hold_seconds: Histogram,
    launch_cost: Gauge,
    item_cost: Gauge,
    arrival_rate: Gauge,
    returns: Gauge,
}

impl Meters {
    fn new(telemetry: &Telemetry, deployment: &str) -> Meters {
        let gauge = |metric| telemetry.gauge(metric, &[deployment]);
        let level = |metric| telemetry.level(metric, &[deployment]);
        let histogram = |metric| telemetry.histogram(metric, &[deployment]);
        Meters {
            queue_seconds: histogram(metrics::QUEUE_SECONDS),
            model_seconds: histogram(metrics::MODEL_SECONDS),
            batch_items: histogram(metrics::BATCH_ITEMS),
            batches: CloseReason::ALL.map(|reason| telemetry.counter(metrics::BATCHES, &[deployment, reason.label()])),
            batch_cost: telemetry.counter(metrics::BATCH_COST, &[deployment]),
            padded_cost: telemetry.counter(metrics::PADDED_COST, &[deployment]),
            queued_items: gauge(metrics::QUEUED_ITEMS),
            queued_bytes: gauge(metrics::QUEUED_BYTES),
            lanes: gauge(metrics::LANES),
            running_items: gauge(metrics::RUNNING_ITEMS),
            ready_replicas: gauge(metrics::READY_REPLICAS),
            hold_seconds: histogram(metrics::HOLD_SECONDS),
            launch_cost: level(metrics::LAUNCH_COST),
            item_cost: level(metrics::ITEM_COST),
            arrival_rate: level(metrics::ARRIVAL_RATE),
            returns: level(metrics::RETURNS),
        }
    }
}

/// One deployment's engine.
#[derive(Debug)]
pub struct Engine {
    deployment: String,
    clock: Clock,
    scheduler: Scheduler<Pending>,
    links: BTreeMap<ReplicaId, Link>,
    /// Replicas in which a suspect runs alone.
    trials: BTreeSet<ReplicaId>,
    inbound: mpsc::UnboundedReceiver<Inbound>,
    reports: mpsc::UnboundedSender<Report>,
    meters: Meters,
}

impl Engine {
    /// An engine without replicas.
    pub fn new(
        deployment: &str,
        rules: Rules,
        clock: Clock,
        inbound: mpsc::UnboundedReceiver<Inbound>,
        reports: mpsc::UnboundedSender<Report>,
        telemetry: &Telemetry,
    ) -> Engine {
        Engine {
            deployment: deployment.to_owned(),
            clock,
            scheduler: Scheduler::new(rules),
            links: BTreeMap::new(),
            trials: BTreeSet::new(),
            inbound,
            reports,
            meters: Meters::new(telemetry, deployment),
        }
    }

    /// Runs until nobody can send any more.
    pub async fn run(mut self) {
        let mut messages = Vec::with_capacity(MESSAGES_AT_ONCE);
        let mut armed = Time(u64::MAX);
        let mut ran = self.clock.now();
        let timer = tokio::time::sleep_until(self.clock.instant(armed));
        tokio::pin!(timer);
        loop {
            tokio::select! {
                biased;
                count = self.inbound.recv_many(&mut messages, MESSAGES_AT_ONCE) => if count == 0 { return },
                // A timer that has rung would be ready at once, for ever, until it is set again.
                () = &mut timer, if armed.0 != u64::MAX => armed = Time(u64::MAX),
            }
            let now = self.clock.now();
            let away = now - std::mem::replace(&mut ran, now);
            // While batches run it wakes in time, unless it was stopped (Ctrl-Z, a frozen container).
            if away >= BEAT + AWAY {
                self.scheduler.excuse(away);
            }
            for message in messages.drain(..) {
                self.receive(now, message);
            }
            while let Some(action) = self.scheduler.poll(now) {
                self.carry_out(now, action);
            }
            self.show();
            let beat = self.scheduler.is_watching().then(|| now + BEAT);
            // Most wakes are deadlines far away that only move further: the timer is touched when it must ring earlier.
            if let Some(wake) = self.scheduler.next_wake().into_iter().chain(beat).min().filter(|&wake| wake < armed) {
                armed = wake;
                timer.as_mut().reset(self.clock.instant(wake));
            }
        }
    }

    fn receive(&mut self, now: Time, message: Inbound) {
        match message {
            Inbound::Submit(call, reply) => {
                if let Err((pending, refusal)) = self.scheduler.submit(now, new_item(call, reply)) {
                    self.refuse(pending, refusal);
                }
            }
            Inbound::SubmitMany { items, continues } => self.submit_many(now, items, continues),
            Inbound::Cancel(id) => {
                if let Some(link) = self.scheduler.replica_of(id).and_then(|replica| self.links.get(&replica)) {
                    link.cancel(id);
                }
                // Nobody listens to the reply any more.
                drop(self.scheduler.cancel(id));
            }
            Inbound::Started(batch) => self.scheduler.batch_started(batch),
            Inbound::Results(replica, results) => self.results(now, replica, results),
            Inbound::Profiled(batches) => self.scheduler.profiled(batches),
            Inbound::Up(replica, link) => {
                self.links.insert(replica, link);
                self.scheduler.replica_up(now, replica);
            }
            Inbound::Retire(replica) => {
                self.scheduler.retire(replica);
                // Behind the last batch that it was sent: none can be on its way any more.
                if let Some(link) = self.links.get(&replica) {
                    link.shutdown();
                }
            }
            Inbound::Lost(replica, loss) => {
                self.links.remove(&replica);
                self.trials.remove(&replica);
                self.scheduler.replica_lost(now, replica, loss);
            }
            Inbound::Door(door) => self.scheduler.set_door(door),
            Inbound::Explain(reply) => {
                self.show_learned(now);
                // Whoever asked may have gone away.
                drop(reply.send(self.scheduler.explain(now)));
            }
        }
    }

    /// The items of one request enter together or not at all; after that each is on its own.
    fn submit_many(&mut self, now: Time, items: Vec<(Box<Call>, oneshot::Sender<Answer>)>, continues: bool) {
        let Some((first, _)) = items.first() else { return };
        let bytes = items.iter().map(|(call, _)| call.bytes()).sum();
        let &Call { ref group, priority, cost, timeout, .. } = &**first;
        let admitted = self.scheduler.admit(now, &Asking { group, priority, cost, bytes, timeout, continues });
        for (call, reply) in items {
            let entered = match admitted {
                Ok(()) => self.scheduler.enter(now, new_item(call, reply)),
                Err(refusal) => Err((Pending { call, reply }, refusal)),
            };
            if let Err((pending, refusal)) = entered {
                self.refuse(pending, refusal);
            }
        }
    }

    fn refuse(&self, pending: Pending, refusal: Refusal) {
        fail(pending.reply, self.refused(refusal), Timing::default());
    }

    fn results(&mut self, now: Time, replica: ReplicaId, results: ReceivedResults) {
        let model = results.durations.predict;
        if results.is_clean {
            let computed =
                results.items.iter().filter(|(_, outcome)| matches!(outcome, ItemOutcome::Values(_))).count();
            self.scheduler.computed(results.batch, computed);
            // Work that a device was given may be waited for while its outputs are encoded.
            let computing = model + results.durations.encode;
            self.scheduler.moved(results.batch, results.bytes(), computing);
            self.meters.model_seconds.observe(model.as_secs_f64());
        }
        for (id, outcome) in results.items {
            let Some(ended) = self.scheduler.item_done(results.batch, id) else { continue };
            let timing = timing(now, &ended, model);
            self.meters.queue_seconds.observe(timing.queue.as_secs_f64());
            let mut tokens = None;
            let result = match outcome {
                ItemOutcome::Values(mut parts) => {
                    tokens = take_tokens(&mut parts);
                    Ok(parts)
                }
                ItemOutcome::Failed(failure) => Err(failure),
                // The two clocks may disagree by a little about who was too late.
                ItemOutcome::LeftOut => Err(expired(now, &ended)),
            };
            // A caller that went away has sent a cancel, which is on its way.
            let _ = ended.payload.reply.send(Answer { result, timing, tokens });
        }
        if results.is_out_of_memory
            && let Some(most) = self.scheduler.too_large(now, results.batch)
        {
            let name = &self.deployment;
            tracing::warn!(
                "{name}: a batch was too large for the memory of its device; for a while at most {most} items"
            );
        }
        self.scheduler.batch_done(now, replica, results.batch, results.is_clean);
        if self.trials.remove(&replica) {
            report(&self.reports, Report::Trial(replica, false));
        }
    }

    fn carry_out(&mut self, now: Time, action: Action<Pending>) {
        match action {
            Action::Launch(launch) => self.launch(now, &launch),
            Action::Fail(ended, outcome) => {
                let failure = self.failed(now, &ended, outcome);
                let timing = timing(now, &ended, Duration::ZERO);
                fail(ended.payload.reply, failure, timing);
            }
            Action::Forget(replica, item) => {
                if let Some(link) = self.links.get(&replica) {
                    link.cancel(item);
                }
            }
            Action::Kill(replica) => {
                report(&self.reports, Report::Hung(replica));
            }
        }
    }

    fn launch(&mut self, now: Time, launch: &Launch) {
        self.meters.batch_items.observe(launch.items.len() as f64);
        self.meters.batches[launch.reason as usize].inc();
        self.meters.batch_cost.inc_by(launch.load.units(Measure::Cost) as u64);
        self.meters.padded_cost.inc_by(launch.load.units(Measure::Padded) as u64);
        if !launch.held.is_zero() {
            self.meters.hold_seconds.observe(launch.held.as_secs_f64());
        }
        let mut items = Vec::with_capacity(launch.items.len());
        for &id in &launch.items {
            let look = self.scheduler.look(id, now);
            let (pending, remaining) = look.expect("what was launched a moment ago is still in");
            items.push((&*pending.call, remaining));
        }
        if let Some(link) = self.links.get(&launch.replica) {
            link.batch(launch.batch, &items);
        }
        if launch.reason == CloseReason::Suspect && self.trials.insert(launch.replica) {
            report(&self.reports, Report::Trial(launch.replica, true));
        }
    }

    fn show_learned(&self, now: Time) {
        let (curve, traffic) = (self.scheduler.curve(), self.scheduler.traffic());
        self.meters.launch_cost.set(curve.pace().launch_s());
        self.meters.item_cost.set(curve.item_s());
        self.meters.arrival_rate.set(traffic.rate(now, curve.by_items()));
        self.meters.returns.set(traffic.lags().median().map_or(0.0, |(share, _)| share));
    }

    fn show(&self) {
        let scheduler = &self.scheduler;
        let queued = scheduler.queued_items();
        self.meters.queued_items.set(queued as i64);
        self.meters.queued_bytes.set(scheduler.queued_bytes() as i64);
        self.meters.lanes.set(scheduler.lanes() as i64);
        self.meters.running_items.set(scheduler.len() as i64 - queued as i64);
        self.meters.ready_replicas.set(scheduler.replicas() as i64);
    }

    fn refused(&self, refusal: Refusal) -> Failure {
        let name = &self.deployment;
        let queued = self.scheduler.queued_items();
        // Whoever was refused at its turn has no wait before it any more.
        let wait = refusal.predicted_wait.filter(|&wait| wait >= SHORTEST_WAIT);
        let wait = wait.map(|wait| format!(", a wait of about {}", sayable(wait))).unwrap_or_default();
        let detail = match refusal.outcome {
            Outcome::QueueFull => {
                format!("{queued} items wait for {name}{wait}: no more may (max_queued_items); come back later")
            }
            Outcome::QueueBytesFull => {
                let held = self.scheduler.queued_bytes();
                format!("items of {held} bytes wait for {name}{wait}: no more may (max_queued_bytes); come back later")
            }
            Outcome::WaitTooLong => {
                format!(
                    "{queued} items wait for {name}{wait}: longer than a request may wait (max_wait_s); come back later"
                )
            }
            Outcome::WouldBeLate => {
                format!(
                    "{queued} items wait for {name}{wait}: the answer would miss latency_target_ms; come back later"
                )
            }
            Outcome::TooManyLanes => format!("{name} has as many group keys waiting as it may; come back later"),
            Outcome::DeadlineUnreachable => {
                format!("{queued} items wait for {name}{wait}: the deadline of this request cannot be met")
            }
            Outcome::Quarantined => {
                format!("the same input killed a worker of {name} a moment ago; it is refused for a minute")
            }
            other => return self.closed(other, refusal.retry_after),
        };
        Failure { retry_after: refusal.retry_after, ..Failure::new(refusal.outcome, detail) }
    }

    fn closed(&self, outcome: Outcome, retry_after: Option<Duration>) -> Failure {
        let detail = match outcome {
            Outcome::Loading => "is still loading its model",
            Outcome::CrashLooping => "has no working replica: its workers keep dying; see the server's log",
            _ => "takes nothing new: the server is shutting down",
        };
        Failure { retry_after, ..Failure::new(outcome, format!("{} {detail}", self.deployment)) }
    }

    fn failed(&mut self, now: Time, ended: &Ended<Pending>, outcome: Outcome) -> Failure {
        match outcome {
            Outcome::DeadlineExceeded => expired(now, ended),
            Outcome::WorkerLost => {
                let name = &self.deployment;
                let detail = if ended.batch_size <= 1 {
                    format!(
                        "the worker of {name} died or hung while it computed this input alone; the input is not tried again"
                    )
                } else {
                    format!(
                        "the worker of {name} died or hung while it computed this input, and the deployment says retry=False"
                    )
                };
                Failure::new(outcome, detail)
            }
            Outcome::WouldBeLate => {
                let refusal = self.scheduler.late(now);
                self.refused(refusal)
            }
            // Its like was convicted while it waited.
            Outcome::Quarantined => self.refused(Refusal::never(outcome)),
            Outcome::DeadlineUnreachable => {
                Failure::new(outcome, format!("{} cannot answer before the deadline of this request", self.deployment))
            }
            Outcome::Internal => Failure::new(outcome, "the worker ended the batch without a result for this item"),
            other => self.closed(other, Some(Duration::from_secs(1))),
        }
    }
}

fn new_item(mut call: Box<Call>, reply: oneshot::Sender<Answer>) -> NewItem<Pending> {
    NewItem {
        id: call.id,
        group: std::mem::take(&mut call.group),
        cost: call.cost,
        bytes: call.bytes(),
        priority: call.priority,
        timeout: call.timeout,
        payload: Pending { call, reply },
    }
}

/// As people say it: a wait of 40 ms is not one of "0.0 s".
fn sayable(length: Duration) -> String {
    let ms = length.as_secs_f64() * 1e3;
    match ms {
        _ if ms >= 1000.0 => format!("{:.1} s", ms / 1e3),
        _ if ms >= 10.0 => format!("{ms:.0} ms"),
        _ => format!("{ms:.1} ms"),
    }
}

fn report(reports: &mpsc::UnboundedSender<Report>, message: Report) {
    // Without a supervisor the server is going down, and the worker with it.
    let _ = reports.send(message);
}

fn fail(reply: oneshot::Sender<Answer>, failure: Failure, timing: Timing) {
    let _ = reply.send(Answer { result: Err(failure), timing, tokens: None });
}

fn timing(now: Time, ended: &Ended<Pending>, model: Duration) -> Timing {
    let Some(launched) = ended.launched else {
        return Timing { queue: now - ended.arrival, ..Timing::default() };
    };
    let batch = (now - launched).saturating_sub(model);
    Timing { queue: launched - ended.arrival, batch, model, batch_size: ended.batch_size }
}

fn expired(now: Time, ended: &Ended<Pending>) -> Failure {
    let after = (now - ended.arrival).as_millis();
    let stage = if ended.launched.is_some() { "with a worker" } else { "waiting in the queue" };
    Failure::new(
        Outcome::DeadlineExceeded,
        format!("the deadline passed after {after} ms, while the request was {stage}"),
    )
}
