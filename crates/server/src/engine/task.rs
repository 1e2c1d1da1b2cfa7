//! The engine task of one deployment: owns its scheduler, carries out its decisions. Messages in, actions out, no locks.

mod asking;
pub(crate) mod asks;
mod demand;
mod failures;
mod lost_inputs;
mod meters;
mod pauses;
mod pending;
mod steps;
mod timings;

use crate::base::clock::{AWAY, Clock};
use crate::base::telemetry::Telemetry;
use crate::base::traces::notes::{BatchTrace, Traced};
use crate::engine::deployment::live::why::BatchFacts;
use crate::engine::deployment::published::Published;
use crate::engine::deployment::{Inbound, Submission};
use crate::engine::task::asks::Asks;
use crate::engine::task::lost_inputs::LostInputs;
use crate::engine::task::meters::{Meters, Rerun};
use crate::engine::task::pending::{End, Pending, Taken, new_item};
use crate::engine::task::timings::{expired, fail, launched_batch, timing};
use crate::link::batch_end::{BatchEnd, Durations};
use crate::link::front::events::BatchEvent;
use crate::link::front::link::Link;
use crate::link::front::worker_event::WorkerEvent;
use crate::link::results_frame::{ItemOutcome, ItemResult, ReceivedResults};
use crate::values::answer::{Answer, Timing, take_tokens};
use crate::values::call::Call;
use crate::values::metadata::Metadata;
use jitney_core::config::rules::Rules;
use jitney_core::learn::batch_cost::Measure;
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::request::{BatchId, ItemId, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::{Action, Launch};
use jitney_core::scheduler::admission::refusal::Refusal;
use jitney_core::scheduler::item::{EndedItem, RequestTerms};
use jitney_core::scheduler::state::Scheduler;
use jitney_core::time::Time;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Shorter waits are not worth a word.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// While batches run the engine wakes as often, so that it knows for how long it did not run.
const BEAT: Duration = Duration::from_secs(1);
/// Messages taken at once before decisions are made.
const MESSAGES_AT_ONCE: usize = 256;

/// The results of a batch so far.
#[derive(Debug)]
struct Answered {
    replica: ReplicaId,
    /// Items that ended with values.
    items: usize,
    /// Bytes of all values.
    bytes: u64,
    /// Of its items, for what is logged if it hangs.
    metadata: Vec<Metadata>,
    /// `None` if none of its items is of a traced request.
    trace: Option<Arc<BatchTrace>>,
    /// For the explanation of items that took long.
    batch: BatchFacts,
}

/// One deployment's engine.
#[derive(Debug)]
pub struct Engine {
    deployment: String,
    clock: Clock,
    /// Items join and leave the replicas one by one.
    joins: bool,
    /// They run side by side there, and the model makes no steps.
    side_by_side: bool,
    /// Most items of a batch.
    most_items: usize,
    /// A batch that runs longer is a hang.
    batch_timeout: Duration,
    /// How long a request waits for a replica at most, if it does not say how long.
    patience: Duration,
    /// When the capacity of a replica was published last.
    measured: Time,
    scheduler: Scheduler<Pending>,
    links: BTreeMap<ReplicaId, Link>,
    /// Replicas in which a suspect runs alone.
    trials: BTreeSet<ReplicaId>,
    /// The results so far of each batch that a worker has.
    answered: FxHashMap<BatchId, Answered>,
    inbound: mpsc::UnboundedReceiver<Inbound>,
    reports: mpsc::UnboundedSender<WorkerEvent>,
    meters: Meters,
    lost_inputs: LostInputs,
    is_crash_looping: bool,
    /// What the models of its workers ask other deployments.
    asks: Asks,
    /// What others see of its state.
    published: Published,
}

impl Engine {
    /// An engine without replicas; it says in `published` how many it has.
    pub fn new(
        deployment: &str,
        rules: Rules,
        clock: Clock,
        inbound: mpsc::UnboundedReceiver<Inbound>,
        reports: mpsc::UnboundedSender<WorkerEvent>,
        telemetry: &Telemetry,
        published: Published,
    ) -> Engine {
        Engine {
            deployment: deployment.to_owned(),
            clock,
            joins: rules.joins,
            side_by_side: rules.side_by_side,
            most_items: rules.batch.max_items,
            batch_timeout: rules.batch_timeout,
            patience: rules.target.map_or(rules.request_timeout, |target| target.min(rules.request_timeout)),
            measured: Time(0),
            scheduler: Scheduler::new(rules),
            links: BTreeMap::new(),
            trials: BTreeSet::new(),
            answered: FxHashMap::default(),
            inbound,
            reports,
            meters: Meters::new(telemetry, deployment, rules.joins),
            lost_inputs: LostInputs::default(),
            is_crash_looping: false,
            asks: Asks::default(),
            published,
        }
    }

    /// Runs until all senders of messages are dropped.
    pub async fn run(mut self) {
        let mut messages = Vec::with_capacity(MESSAGES_AT_ONCE);
        let mut armed = Time(u64::MAX);
        let mut ran = self.clock.now();
        let timer = tokio::time::sleep_until(self.clock.instant(armed));
        tokio::pin!(timer);
        loop {
            tokio::select! {
                biased;
                Some(read) = self.lost_inputs.next() => self.inputs_read(self.clock.now(), read),
                count = self.inbound.recv_many(&mut messages, MESSAGES_AT_ONCE) => if count == 0 { return },
                // A timer that has rung stays ready until it is set again, and this loop would never sleep.
                () = &mut timer, if armed.0 != u64::MAX => armed = Time(u64::MAX),
            }
            let now = self.clock.now();
            let away = now - std::mem::replace(&mut ran, now);
            // While batches run it wakes in time, unless it was stopped (Ctrl-Z, a frozen container).
            if away >= BEAT + AWAY {
                self.scheduler.excuse(away);
            }
            if self.published.take_refused() {
                self.scheduler.refused_before(now);
            }
            for message in messages.drain(..) {
                self.receive(now, message);
            }
            self.excuse_asking(now);
            while let Some(action) = self.scheduler.poll(now) {
                self.carry_out(now, action);
            }
            self.show(now);
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
            Inbound::Submit(mut call, reply) => {
                self.published.demand().arrived(1);
                call.ahead = self.scheduler.queued_items() as u32;
                if let Some(refusal) = self.asleep(call.timeout, call.asked.is_some()) {
                    return self.refuse(Pending::new(call, reply, 0), refusal);
                }
                let item = new_item(call, reply, self.joins, self.scheduler.queued_items());
                if let Err((pending, refusal)) = self.scheduler.submit(now, item) {
                    self.refuse(pending, refusal);
                }
            }
            Inbound::SubmitMany { items, continues } => self.submit_many(now, items, continues),
            Inbound::Cancel(id) => self.cancelled(now, id),
            Inbound::Resume(id) => self.resume(now, id),
            Inbound::Batch(replica, event) if self.is_of_another(replica, &event) => {
                tracing::debug!(
                    worker = replica.0,
                    "{}: what a worker says of another one's batch is ignored",
                    self.deployment
                );
            }
            Inbound::Batch(_, BatchEvent::Started(batch)) => self.scheduler.batch_started(batch),
            Inbound::Batch(replica, BatchEvent::InputsAgain(batch, items)) => {
                self.send_inputs(now, replica, batch, &items);
            }
            Inbound::Batch(replica, BatchEvent::Results(results)) => {
                self.published.live().progressed(replica);
                self.results(now, results);
            }
            Inbound::Batch(replica, BatchEvent::Step(step, results)) => self.stepped(now, replica, step, results),
            Inbound::Batch(replica, BatchEvent::Ended(end)) => self.batch_ended(now, replica, end),
            Inbound::Batch(replica, BatchEvent::Asks(frame, answers)) => self.asks(now, replica, &frame, &answers),
            Inbound::Batch(replica, BatchEvent::Disconnected) => self.asks.lost(replica),
            Inbound::Profiled(key, batches) if key.method().is_empty() => {
                self.scheduler.profiled(ReplicaClass::default(), batches);
            }
            Inbound::Profiled(key, batches) => {
                self.scheduler.method_profiled(ReplicaClass::default(), &key, batches);
            }
            Inbound::Up(replica, link) => {
                self.links.insert(replica, link);
                self.is_crash_looping = false;
                self.scheduler.replica_up(now, replica, ReplicaClass::default());
            }
            Inbound::Doubt(replica, true) => {
                // What a model asks belongs to the replica that asks, so its items run on one replica at a time.
                self.scheduler.doubt(replica, !self.asks.may_ask());
            }
            Inbound::Doubt(replica, false) => self.scheduler.trust(replica),
            Inbound::Placed(replica, number, is_far) => {
                self.meters.replica_up(replica, number);
                self.published.live().replica_up(replica, number);
                if is_far {
                    self.scheduler.replica_is_far(replica);
                }
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
                self.asks.lost(replica);
                self.trials.remove(&replica);
                self.meters.replica_lost(replica);
                self.published.live().replica_lost(replica);
                self.trace_loss(now, replica, loss);
                self.answered.retain(|_, answered| answered.replica != replica);
                self.lost(now, replica, loss);
            }
            Inbound::Drain => self.scheduler.drain(),
            Inbound::CrashLooping => {
                self.is_crash_looping = true;
                self.scheduler.crash_looping();
            }
            // The page that asked may have timed out.
            Inbound::Explain(reply) => {
                drop(reply.send(self.explain(now)));
            }
            Inbound::ShowLearned(reply) => {
                self.show_learned(now);
                let _ = reply.send(());
            }
        }
    }

    /// Whether a worker speaks of a batch that another one holds. Numbers of batches can be guessed.
    fn is_of_another(&self, replica: ReplicaId, event: &BatchEvent) -> bool {
        event.batch().and_then(|batch| self.scheduler.holder(batch)).is_some_and(|holder| holder != replica)
    }

    /// The items of one request enter together or not at all; after that each is on its own.
    fn submit_many(&mut self, now: Time, items: Vec<Submission>, continues: bool) {
        let Some((first, _)) = items.first() else { return };
        let bytes = items.iter().map(|(call, _)| call.bytes()).sum();
        let &Call { ref group, priority, cost, timeout, asked, .. } = &**first;
        let terms = RequestTerms { group, priority, cost, bytes, timeout, continues, asked: asked.is_some() };
        let admitted = self.admit(now, &terms, items.len());
        for (mut call, reply) in items {
            call.ahead = self.scheduler.queued_items() as u32;
            let entered = match admitted {
                Ok(()) => {
                    let ahead = self.scheduler.queued_items();
                    self.scheduler.enter(now, new_item(call, reply, self.joins, ahead))
                }
                Err(refusal) => Err((Pending::new(call, reply, 0), refusal)),
            };
            if let Err((pending, refusal)) = entered {
                self.refuse(pending, refusal);
            }
        }
    }

    /// Takes an item out. A worker that has it is asked to stop, and holds it until it says that it is done with it.
    fn cancel(&mut self, id: ItemId) -> Option<EndedItem<Pending>> {
        if let Some(link) = self.scheduler.replica_of(id).and_then(|replica| self.links.get(&replica)) {
            link.cancel(id);
        }
        self.asks.parent_ended(id);
        self.scheduler.cancel(id)
    }

    fn refuse(&self, pending: Pending, refusal: Refusal) {
        self.count_refused(refusal.outcome);
        let failure = self.refused(refusal);
        self.note(&pending, None, &Timing::default(), Some(&failure));
        fail(pending.reply, failure, Timing::default());
    }

    fn results(&mut self, now: Time, results: ReceivedResults) {
        let ReceivedResults { batch, predict, items } = results;
        self.scheduler.progressed(now, batch);
        for result in items {
            self.result(now, batch, predict, result);
        }
    }

    fn result(&mut self, now: Time, batch: BatchId, predict: Duration, result: ItemResult) {
        if let Some(answered) = self.answered.get_mut(&batch) {
            answered.bytes += result.bytes();
            answered.items += usize::from(matches!(result.outcome, ItemOutcome::Values(_) | ItemOutcome::End(..)));
        }
        let ItemResult { id, sequence, outcome } = result;
        self.scheduler.answered_by(batch, id);
        let is_last = outcome.is_end();
        let mut launch = None;
        if !is_last {
            self.meters.parts.inc();
            launch = if sequence == 0 { self.scheduler.launch_of(id) } else { None };
        }
        let Some(pending) = self.scheduler.item_of(batch, id) else {
            // No client waits for it any more. The replica that held it does so no longer.
            if is_last {
                drop(self.scheduler.item_ended(batch, id));
            }
            return;
        };
        if launch.is_some() {
            pending.reply.begin(launch);
        }
        let end = match pending.take(sequence, outcome) {
            Taken::End(end) => end,
            Taken::Part => return self.scheduler.part_sent(now, batch, id),
            Taken::LastForNow => {
                let patience = pending.reply.patience();
                self.scheduler.part_sent(now, batch, id);
                return self.pause(now, id, patience);
            }
        };
        // An item may end here while its worker would send more of it: then the worker is asked to stop.
        self.asks.parent_ended(id);
        let ended = if is_last { self.scheduler.item_ended(batch, id) } else { self.cancel(id) };
        let Some(ended) = ended else { return };
        let timing = timing(now, &ended, predict);
        self.trace_result(now, &ended, predict, !matches!(end, End::Values(..)));
        self.meters.queue_seconds.observe(timing.queue.as_secs_f64());
        if matches!(end, End::Values(..)) {
            self.meters.item_computed(&timing, self.joins);
        }
        let (mut tokens, mut stream_end) = (None, None);
        let result = match end {
            End::Values(mut parts, end) => {
                end.as_ref().and_then(|end| end.usage).into_iter().for_each(|usage| self.meters.count_tokens(usage));
                (tokens, stream_end) = (take_tokens(&mut parts), end);
                Ok(parts)
            }
            End::Failed(failure) => Err(failure),
            // The two clocks may disagree by a little about which items were too late.
            End::LeftOut => Err(expired(now, &ended)),
        };
        self.note(&ended.payload, Some(batch), &timing, result.as_ref().err());
        // A caller that went away has sent a cancel, which is on its way.
        ended.payload.reply.end(Answer { result, timing, tokens, end: stream_end });
    }

    /// Sends these inputs again, always in one frame: the worker waits for it. Items that have ended are left out.
    fn send_inputs(&mut self, now: Time, replica: ReplicaId, batch: BatchId, items: &[ItemId]) {
        let here = |scheduler: &mut Scheduler<Pending>, id| scheduler.item_of(batch, id).is_some();
        let items: Vec<ItemId> = items.iter().copied().filter(|&id| here(&mut self.scheduler, id)).collect();
        let payloads = items.iter().filter_map(|&id| self.scheduler.payload(id, now));
        let calls: Vec<&Call> = payloads.map(|(pending, _)| &*pending.call).collect();
        if let Some(link) = self.links.get(&replica) {
            link.inputs(batch, &calls);
        }
    }

    fn batch_ended(&mut self, now: Time, replica: ReplicaId, end: BatchEnd) {
        self.published.live().batch_ended(replica, end.durations.predict);
        let answered = self.answered.remove(&end.batch);
        self.trace_end(now, answered.as_ref().and_then(|one| one.trace.as_ref()), Some(end.durations));
        match answered {
            Some(answered) if end.is_clean => {
                self.scheduler.computed(end.batch, answered.items);
                let Durations { decode, predict, encode } = end.durations;
                // Work that a device was given may be waited for while its outputs are encoded.
                let computing = predict + encode;
                self.scheduler.moved(end.batch, answered.bytes, computing, decode + computing);
                self.meters.batch_computed(replica, answered.items, &end.durations);
            }
            Some(_) if end.is_out_of_memory => self.meters.batch_rerun(Rerun::OutOfMemory),
            Some(answered) if answered.items > 0 => self.meters.batch_rerun(Rerun::Split),
            _ => {}
        }
        if end.is_out_of_memory
            && let Some(most) = self.scheduler.too_large(now, end.batch)
        {
            self.warn_of_memory("a batch was", most);
        }
        self.scheduler.batch_ended(now, replica, end.batch, end.is_clean);
        if self.trials.remove(&replica) {
            report(&self.reports, WorkerEvent::Trial(replica, false));
        }
    }

    fn warn_of_memory(&self, what: &str, most: usize) {
        let name = &self.deployment;
        tracing::warn!("{name}: {what} too large for the memory of its device; for a while at most {most} items");
    }

    fn carry_out(&mut self, now: Time, action: Action<Pending>) {
        match action {
            Action::Launch(launch) => self.launch(now, &launch),
            Action::Fail(ended, outcome) => {
                self.asks.parent_ended(ended.id);
                self.count_refused(outcome);
                self.trace_result(now, &ended, Duration::ZERO, true);
                let failure = self.failed(now, &ended, outcome);
                let timing = timing(now, &ended, Duration::ZERO);
                self.note(&ended.payload, None, &timing, Some(&failure));
                fail(ended.payload.reply, failure, timing);
            }
            Action::Forget(replica, item) => {
                if let Some(link) = self.links.get(&replica) {
                    link.cancel(item);
                }
            }
            Action::Slow(replica, factor) => report(&self.reports, WorkerEvent::Slow(replica, factor)),
            Action::Kill(replica) => {
                let running = self.answered.iter().filter(|(_, answered)| answered.replica == replica);
                let running = running.min_by_key(|(batch, _)| **batch).map(|(_, answered)| &answered.metadata[..]);
                let mut requests: Vec<_> =
                    running.unwrap_or_default().iter().map(|one| one.request_id.text().into()).collect();
                requests.dedup(); // Neighbours may be of one request.
                report(&self.reports, WorkerEvent::Hung(replica, requests));
            }
        }
    }

    /// The items of a launch, and what is left of their times.
    fn launched(&self, now: Time, launch: &Launch) -> Vec<(&Call, Duration)> {
        let look = |&id| self.scheduler.payload(id, now).expect("what was launched a moment ago is still in");
        launch.items.iter().map(look).map(|(pending, remaining)| (&*pending.call, remaining)).collect()
    }

    fn launch(&mut self, now: Time, launch: &Launch) {
        self.meters.batch_items.observe(launch.items.len() as f64);
        self.meters.batches[launch.reason as usize].inc();
        self.meters.hedged_items.inc_by(launch.copies as u64);
        self.meters.batch_cost.inc_by(launch.load.units(Measure::Cost) as u64);
        self.meters.padded_cost.inc_by(launch.load.units(Measure::Padded) as u64);
        if !launch.held.is_zero() {
            self.meters.hold_seconds.observe(launch.held.as_secs_f64());
        }
        let mut items = self.launched(now, launch);
        let batch = launched_batch(launch, self.most_items, items.iter().map(|(call, _)| call.bytes()));
        let mut trace = None;
        if let Some(traced) = Traced::of(items.iter().filter_map(|(call, _)| call.note())) {
            trace = Some(self.trace_launch(now, launch, batch, traced));
            items = self.launched(now, launch);
        }
        if let Some(link) = self.links.get(&launch.replica) {
            link.batch(launch.batch, &items);
            let metadata = items.iter().filter_map(|(call, _)| call.metadata.clone()).collect();
            self.published.live().launched(launch.replica, &batch);
            let answered = Answered { replica: launch.replica, items: 0, bytes: 0, metadata, trace, batch };
            self.answered.insert(launch.batch, answered);
        }
        for &id in &launch.items {
            if let Some(pending) = self.scheduler.item_of(launch.batch, id) {
                pending.reply.set_waiting(false);
            }
        }
        if launch.reason == CloseReason::Suspect && self.trials.insert(launch.replica) {
            report(&self.reports, WorkerEvent::Trial(launch.replica, true));
        }
    }
}

fn report(reports: &mpsc::UnboundedSender<WorkerEvent>, message: WorkerEvent) {
    // Without a supervisor the server is going down, and the worker with it.
    let _ = reports.send(message);
}
