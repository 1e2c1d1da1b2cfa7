//! How the items of a composition enter the deployments that it calls.

use crate::base::clock::{Clock, after};
use crate::base::offload;
use crate::engine::deployment::{CancelOnDrop, Deployment};
use crate::engine::program_values;
use crate::engine::program_values::{Inherited, Parts, Terms};
use crate::engine::reply::ReplyReceiver;
use crate::values::answer::{Answer, Failure};
use crate::values::call::Call;
use jitney_core::config::manifest::DeploymentManifest;
use jitney_core::scheduler::item::Asked;
use jitney_core::time::Time;
use std::time::Duration;
use tokio::time::Instant;

/// An item of the composition, and the terms that it has in all stages.
pub(super) struct Entry {
    call: Box<Call>,
    /// When its request, or the oldest one behind it, arrived.
    since: Time,
    deadline: Instant,
}

impl Entry {
    /// An item that arrives now.
    pub(super) fn new(call: Box<Call>, timeout: Duration, clock: Clock) -> Entry {
        let deadline = after(Instant::now(), call.timeout.unwrap_or(timeout));
        let since = call.asked.map_or_else(|| clock.now(), |asked| asked.since);
        Entry { call, since, deadline }
    }

    /// The call of a deployment with these values for this item. Values that a model made were admitted with the request: then
    /// they keep its place in the queue, and admission does not refuse them.
    pub(super) fn call(&self, manifest: &DeploymentManifest, parts: Parts, is_made: bool) -> Result<Call, Failure> {
        let Call { encoding, priority, asked, metadata, .. } = &*self.call;
        let metadata = metadata.clone();
        let (id, further) = metadata.map(|metadata| (metadata.request_id, metadata.further)).unwrap_or_default();
        let terms = Terms {
            timeout: Some(self.deadline.saturating_duration_since(Instant::now())),
            priority: *priority,
            id,
            inherited: Some(Inherited { asked: Asked { since: self.since, may_stream: false }, further }),
            ..Terms::default()
        };
        let call = program_values::call(manifest, parts, &terms)?;
        let asked = if is_made { call.asked } else { *asked };
        Ok(Call { encoding: *encoding, asked, ..call })
    }
}

/// An item at one of the deployments that are called. Dropping it cancels it there.
pub(super) enum Begun {
    /// Its engine has it since this instant.
    Waits(Instant, ReplyReceiver, CancelOnDrop),
    /// It is not what the deployment takes.
    Refused(Failure),
}

impl Begun {
    /// Hands an item over.
    pub(super) fn one(deployment: &Deployment, call: Call) -> Begun {
        let (answer, guard) = deployment.begin(call, &deployment.waiting, None);
        Begun::Waits(Instant::now(), answer, guard)
    }

    /// Hands items over, which are admitted together; in their order.
    pub(super) async fn all(deployment: &Deployment, entries: &[Entry], continues: bool) -> Vec<Begun> {
        let manifest = &deployment.manifest;
        let weight = entries.iter().map(|entry| program_values::weight(manifest, &entry.call.parts)).sum();
        let (calls, refused) = offload::run(weight, || {
            let mut calls = Vec::with_capacity(entries.len());
            let call = |entry: &Entry| entry.call(manifest, entry.call.parts.clone(), false);
            let refused: Vec<_> = entries.iter().map(|entry| call(entry).map(|call| calls.push(call)).err()).collect();
            (calls, refused)
        })
        .await;
        let start = Instant::now();
        let mut waiting = deployment.begin_each(calls, continues).into_iter();
        let mut next = || waiting.next().map(|(answer, guard)| Begun::Waits(start, answer, guard));
        let begun = |refused: Option<Failure>| refused.map(Begun::Refused).or_else(&mut next);
        refused.into_iter().filter_map(begun).collect()
    }

    /// Waits for its answer, and counts it as a request of the deployment.
    pub(super) async fn end(self, deployment: &Deployment) -> Answer {
        match self {
            Begun::Waits(began, mut receiver, guard) => {
                let answer = receiver.end().await;
                guard.disarm();
                drop(deployment.answered(began, answer.outcome(), answer.timing));
                answer
            }
            Begun::Refused(failure) => {
                drop(deployment.refuse(failure.outcome));
                Answer::failed(failure)
            }
        }
    }
}
