//! A composition: which deployments it calls, and what becomes of the items that it gets.

use crate::base::clock::Clock;
use crate::base::offload;
use crate::engine::deployment::inbox::CarriesOut;
use crate::engine::deployment::{Deployment, Inbound, Submission};
use crate::engine::program_values;
use crate::engine::program_values::composed::entering::{Begun, Entry};
use crate::engine::program_values::composed::failures::{check_later, of_client, of_made, too_many};
use crate::engine::program_values::composed::passing;
use crate::engine::program_values::composed::running::{Running, RunningItem};
use crate::engine::reply;
use crate::engine::reply::{PartValues, ReplySender};
use crate::values::answer::{Answer, Failure};
use futures_util::future::{Abortable, join_all, try_join_all};
use jitney_core::config::manifest::{Composed, DeploymentManifest};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Carries out the items of a deployment that has no model.
#[derive(Clone, Debug)]
pub(crate) struct Composition(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    plan: Plan,
    /// The time of a request that does not say how long it may take.
    timeout: Duration,
    /// Items that may be on their way at once.
    most: u64,
    clock: Clock,
    running: Running,
    /// A call may come from a thread outside of the runtime.
    runtime: Handle,
}

/// Who is called.
#[derive(Debug)]
enum Plan {
    /// One after the other; there is at least one.
    Chain(Vec<Deployment>),
    /// All at once, each under the name that its answer gets.
    Together(Vec<(Box<str>, Deployment)>),
}

impl Composition {
    /// That of a manifest; `None` if it has a model, or calls a deployment that is not among these. Made in the
    /// runtime of the engines.
    pub(crate) fn new(
        manifest: &DeploymentManifest,
        known: &BTreeMap<String, Deployment>,
        clock: Clock,
    ) -> Option<Composition> {
        let plan = match manifest.composed.as_ref()? {
            Composed::Chain { stages } => {
                Plan::Chain(stages.iter().map(|name| known.get(name).cloned()).collect::<Option<_>>()?)
            }
            Composed::Together { members } => {
                let member = |(label, name): &(String, String)| Some((label.as_str().into(), known.get(name)?.clone()));
                Plan::Together(members.iter().map(member).collect::<Option<_>>()?)
            }
        };
        Some(Composition(Arc::new(Inner {
            name: manifest.name.clone(),
            plan,
            timeout: manifest.options.request_timeout(),
            most: manifest.options.max_queued_items,
            clock,
            running: Running::default(),
            runtime: Handle::current(),
        })))
    }

    /// Takes the items of one request, or of a piece of it.
    fn enter(&self, items: Vec<Submission>, continues: bool) {
        if let Err(failure) = self.0.check_room(&items, continues) {
            for (_, reply) in items {
                reply.end(Answer::failed(failure.clone()));
            }
            return;
        }
        let running: Vec<_> = items.iter().map(|(call, _)| self.0.running.begin(call.id)).collect();
        let inner = self.0.clone();
        // It ends with the items.
        drop(self.0.runtime.spawn(async move {
            let (calls, replies): (Vec<_>, Vec<_>) = items.into_iter().unzip();
            let entry = |call| Entry::new(call, inner.timeout, inner.clock);
            let entries: Vec<Entry> = calls.into_iter().map(entry).collect();
            let begun = inner.begin(&entries, continues).await;
            let work = entries.into_iter().zip(begun).zip(replies).zip(running);
            let each = work.map(|(((entry, begun), reply), (registration, item))| {
                inner.answer_caller(Abortable::new(inner.answer(entry, begun), registration), reply, item)
            });
            join_all(each).await;
        }));
    }
}

impl CarriesOut for Composition {
    fn receive(&self, message: Inbound) {
        match message {
            Inbound::Submit(call, reply) => self.enter(vec![(call, reply)], false),
            Inbound::SubmitMany { items, continues } => self.enter(items, continues),
            Inbound::Cancel(id) => self.0.running.cancel(id),
            // There is no replica, no stream and nothing that is learned. Each deployment that is called drains for itself.
            _ => {}
        }
    }
}

impl Inner {
    /// Refuses a request that is not to begin: too much is on its way here, or a later stage has no room.
    fn check_room(&self, items: &[Submission], continues: bool) -> Result<(), Failure> {
        if continues || items.iter().all(|(call, _)| call.asked.is_some()) {
            return Ok(());
        }
        let running = self.running.len();
        if running > 0 && (running + items.len()) as u64 > self.most {
            return Err(too_many(&self.name, running));
        }
        match &self.plan {
            // The items would have come to every stage: the number of replicas of each follows what its clients want.
            Plan::Chain(stages) => stages.iter().skip(1).try_for_each(check_later).inspect_err(|_| {
                stages.iter().for_each(|stage| stage.published.demand().turned_away(items.len()));
            }),
            Plan::Together(_) => Ok(()),
        }
    }

    /// Hands items to the deployments that are called first, which admit them together. For each item: what was begun at each of them.
    async fn begin(&self, entries: &[Entry], continues: bool) -> Vec<SmallVec<[Begun; 2]>> {
        let mut begun: Vec<SmallVec<[Begun; 2]>> = entries.iter().map(|_| SmallVec::new()).collect();
        let first: SmallVec<[&Deployment; 4]> = match &self.plan {
            Plan::Chain(stages) => stages.iter().take(1).collect(),
            Plan::Together(members) => members.iter().map(|(_, member)| member).collect(),
        };
        for deployment in first {
            let of_this = Begun::all(deployment, entries, continues).await;
            begun.iter_mut().zip(of_this).for_each(|(all, one)| all.push(one));
        }
        begun
    }

    /// Answers the caller of one item, unless it is given up.
    async fn answer_caller(
        &self,
        answering: Abortable<impl Future<Output = Answer>>,
        reply: ReplySender,
        item: RunningItem,
    ) {
        if let Ok(answer) = answering.await {
            drop(item);
            reply.end(answer);
        }
    }

    /// The answer to one item.
    async fn answer(&self, entry: Entry, begun: SmallVec<[Begun; 2]>) -> Answer {
        match &self.plan {
            Plan::Chain(stages) => chain(entry, stages, begun).await,
            Plan::Together(members) => {
                // The first failure is the answer, and cancels what is computed for the other members.
                let each = members.iter().zip(begun).map(|((label, member), begun)| async move {
                    let mut answer = begun.end(member).await;
                    answer.result = answer.result.map_err(|failure| of_client(&member.manifest.name, failure));
                    if answer.result.is_ok() { Ok((&**label, answer)) } else { Err(answer) }
                });
                try_join_all(each).await.map_or_else(|failed| failed, passing::together)
            }
        }
    }
}

async fn chain(entry: Entry, stages: &[Deployment], begun: SmallVec<[Begun; 2]>) -> Answer {
    let (Some((first, later)), Some(begun)) = (stages.split_first(), begun.into_iter().next()) else {
        return reply::gone();
    };
    let mut answer = begun.end(first).await;
    answer.result = answer.result.map_err(|failure| of_client(&first.manifest.name, failure));
    for stage in later {
        let (timing, tokens) = (answer.timing, answer.tokens);
        answer = match answer.result {
            Ok(values) => next(&entry, stage, values).await.unwrap_or_else(Answer::failed),
            Err(_) => return answer,
        };
        answer.result = answer.result.map_err(|failure| of_made(&stage.manifest.name, failure));
        answer.timing = passing::after(timing, answer.timing);
        answer.tokens = passing::sum(tokens, answer.tokens);
    }
    answer
}

/// Runs what one stage answered in the next one.
async fn next(entry: &Entry, stage: &Deployment, values: PartValues) -> Result<Answer, Failure> {
    let parts = passing::item(&stage.manifest, values)?;
    let weight = program_values::weight(&stage.manifest, &parts);
    let call = offload::run(weight, || entry.call(&stage.manifest, parts, true)).await?;
    Ok(Begun::one(stage, call).end(stage).await)
}
