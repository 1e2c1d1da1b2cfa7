//! What the models of workers ask other deployments, for items that they compute. An ask ends with the last of these items.

use crate::engine::program_values::Inherited;
use crate::link::frame::header::{FrameError, Segments};
use crate::link::frame::reader::Frame;
use crate::values::answer::Failure;
use jitney_core::request::{ItemId, Priority, ReplicaId};
use jitney_core::time::Time;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Why an ask is cancelled whose items have ended.
pub(crate) const NOBODY_WAITS: &str = "no request waits any more for the items for which the model asks";
/// Items that may be computed at once for one item of a model that asks.
pub(super) const MOST_PER_PARENT: usize = 1024;
/// Asks of one item that are kept in mind until those that have ended are sought.
const ASKS_KEPT: usize = 32;

/// What carries asks out: the calls of other deployments, and their answers to the workers.
pub(crate) trait Asking: Send + Sync + Debug {
    /// The asks of one worker, whose answers this queue takes to it. It may call these deployments.
    fn session(&self, uses: Arc<[String]>, answers: &mpsc::UnboundedSender<Segments>) -> Box<dyn AskSession>;

    /// What a worker must know of these deployments to call them (JSON).
    fn welcome(&self, uses: &[String]) -> serde_json::Value;
}

/// The asks of one worker. Dropping it cancels them.
pub(crate) trait AskSession: Send + Debug {
    /// Calls the deployment that the frame names; `table` is what of its table follows the parents.
    fn ask(&mut self, frame: &Frame, table: &[u8], terms: AskTerms) -> Result<(), FrameError>;

    /// Answers an ask with a failure.
    fn refuse(&mut self, table: &[u8], failure: Failure) -> Result<(), FrameError>;

    /// Takes a frame about an earlier ask: it was cancelled, or parts of its answer were taken.
    fn take(&mut self, frame: &Frame) -> Result<(), FrameError>;

    /// Cancels the ask of this number, if it has not ended, and says so to the model that waits for it.
    fn withdraw(&mut self, number: u64);

    /// Whether this ask has not ended.
    fn is_open(&self, number: u64) -> bool;
}

/// The terms of an ask.
#[derive(Clone, Debug)]
pub(crate) struct AskTerms {
    /// `None` if the model asks for itself: then the ask is a request like those of clients.
    pub(crate) inherited: Option<(Inherited, Priority)>,
    /// The longest time until its deadline.
    pub(crate) timeout: Option<Duration>,
}

/// An ask that a parent has open.
#[derive(Clone, Copy, Debug)]
struct OpenAsk {
    number: u64,
    items: usize,
}

/// The asks of one item.
#[derive(Debug)]
struct Parent {
    replica: ReplicaId,
    asks: SmallVec<[OpenAsk; 2]>,
    /// The asks that have ended are sought when there are more than this.
    most: usize,
}

/// Who carries asks out, and which deployments may be called.
type Allowed = (Arc<dyn Asking>, Arc<[String]>);

/// All asks of the workers of a deployment.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    asking: Option<Allowed>,
    pub(super) sessions: FxHashMap<ReplicaId, Box<dyn AskSession>>,
    /// Each item is with the worker that computes it now.
    parents: FxHashMap<ItemId, Parent>,
    /// Of asks for several items that may be open: how many of these items have not ended.
    shared: Shared,
    /// When the asks that have ended were forgotten last.
    swept: Time,
}

type Shared = FxHashMap<(ReplicaId, u64), usize>;

impl Asks {
    /// Asks that call these deployments.
    pub(crate) fn of(asking: Arc<dyn Asking>, uses: &[String]) -> Asks {
        Asks { asking: Some((asking, uses.into())), ..Asks::default() }
    }

    /// Whether its model uses other deployments.
    pub(super) fn may_ask(&self) -> bool {
        self.asking.is_some()
    }

    /// The asks of this worker; `None` if its model uses no other deployment. The queue takes the answers to the worker.
    pub(super) fn session(
        &mut self,
        replica: ReplicaId,
        answers: &mpsc::UnboundedSender<Segments>,
    ) -> Option<&mut Box<dyn AskSession>> {
        let (asking, uses) = self.asking.as_ref()?;
        Some(self.sessions.entry(replica).or_insert_with(|| asking.session(uses.clone(), answers)))
    }

    /// An item has ended: what was asked for it alone is cancelled.
    pub(super) fn parent_ended(&mut self, id: ItemId) {
        if self.parents.is_empty() {
            return;
        }
        let Some(Parent { replica, asks, .. }) = self.parents.remove(&id) else { return };
        let Some(session) = self.sessions.get_mut(&replica) else { return };
        for OpenAsk { number, .. } in asks {
            let key = (replica, number);
            let others = self.shared.get_mut(&key).map(|parents| {
                *parents -= 1;
                *parents
            });
            if others.unwrap_or(0) == 0 {
                self.shared.remove(&key);
                session.withdraw(number);
            }
        }
    }

    /// A worker is lost: what it asked is cancelled.
    pub(super) fn lost(&mut self, replica: ReplicaId) {
        if self.sessions.remove(&replica).is_some() {
            self.parents.retain(|_, parent| parent.replica != replica);
            self.shared.retain(|&(of, _), _| of != replica);
        }
    }

    /// Notes an ask of so many items for these parents, which this worker computes, each named once; false if one of them would
    /// have too many open.
    pub(super) fn open(&mut self, replica: ReplicaId, number: u64, items: usize, parents: &[ItemId]) -> bool {
        for &id in parents {
            if self.parents.get(&id).is_some_and(|parent| parent.replica != replica) {
                // Another worker gave the item back: its asks there have no use.
                self.parent_ended(id);
            }
        }
        let Some(session) = self.sessions.get(&replica) else { return false };
        // What is asked for many items is shared by them.
        let items = items.div_ceil(parents.len().max(1));
        for id in parents {
            let Some(parent) = self.parents.get_mut(id) else { continue };
            if parent.asks.len() >= parent.most || parent.items() + items > MOST_PER_PARENT {
                parent.forget_ended(&**session, &mut self.shared);
                parent.most = ASKS_KEPT.max(parent.asks.len() * 2);
            }
            if parent.items() + items > MOST_PER_PARENT {
                return false;
            }
        }
        if items > MOST_PER_PARENT {
            return false;
        }
        for &id in parents {
            let new = || Parent { replica, asks: SmallVec::new(), most: ASKS_KEPT };
            self.parents.entry(id).or_insert_with(new).asks.push(OpenAsk { number, items });
        }
        if parents.len() > 1 {
            self.shared.insert((replica, number), parents.len());
        }
        true
    }

    /// The items for which asks are open, and their workers. Asks that have ended are forgotten. Nothing if that was done less
    /// than `every` ago.
    pub(super) fn sweep(&mut self, now: Time, every: Duration) -> Vec<(ReplicaId, ItemId)> {
        if self.parents.is_empty() || now - self.swept < every {
            return Vec::new();
        }
        self.swept = now;
        self.parents.retain(|_, parent| {
            let session = self.sessions.get(&parent.replica);
            session.into_iter().for_each(|session| parent.forget_ended(&**session, &mut self.shared));
            !parent.asks.is_empty()
        });
        self.parents.iter().map(|(&id, parent)| (parent.replica, id)).collect()
    }
}

impl Parent {
    /// Forgets the asks that have ended. They end with no item any more.
    fn forget_ended(&mut self, session: &dyn AskSession, shared: &mut Shared) {
        self.asks.retain(|ask| {
            let is_open = session.is_open(ask.number);
            if !is_open {
                shared.remove(&(self.replica, ask.number));
            }
            is_open
        });
    }

    fn items(&self) -> usize {
        self.asks.iter().map(|ask| ask.items).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Noted {
        open: Vec<u64>,
        withdrawn: Arc<std::sync::Mutex<Vec<u64>>>,
    }

    impl AskSession for Noted {
        fn ask(&mut self, _: &Frame, _: &[u8], _: AskTerms) -> Result<(), FrameError> {
            Ok(())
        }

        fn refuse(&mut self, _: &[u8], _: Failure) -> Result<(), FrameError> {
            Ok(())
        }

        fn take(&mut self, _: &Frame) -> Result<(), FrameError> {
            Ok(())
        }

        fn withdraw(&mut self, number: u64) {
            self.withdrawn.lock().unwrap().push(number);
        }

        fn is_open(&self, number: u64) -> bool {
            self.open.contains(&number)
        }
    }

    const REPLICA: ReplicaId = ReplicaId(1);

    fn asks(open: Vec<u64>) -> (Asks, Arc<std::sync::Mutex<Vec<u64>>>) {
        let session = Noted { open, ..Noted::default() };
        let withdrawn = session.withdrawn.clone();
        let mut asks = Asks::default();
        asks.sessions.insert(REPLICA, Box::new(session));
        (asks, withdrawn)
    }

    #[test]
    fn an_ask_ends_with_the_last_item_for_which_it_was_made() {
        let (mut asks, withdrawn) = asks(vec![7, 8]);
        assert!(asks.open(REPLICA, 7, 1, &[ItemId(1), ItemId(2)]));
        assert!(asks.open(REPLICA, 8, 1, &[ItemId(2)]));
        asks.parent_ended(ItemId(1));
        assert!(withdrawn.lock().unwrap().is_empty(), "another item waits for it");
        asks.parent_ended(ItemId(2));
        assert_eq!(*withdrawn.lock().unwrap(), [7, 8]);
        assert!(asks.parents.is_empty() && asks.shared.is_empty());
    }

    #[test]
    fn an_item_has_so_many_items_open_and_those_that_have_ended_do_not_count() {
        let (mut asks, _) = asks(vec![3]);
        assert!(asks.open(REPLICA, 1, MOST_PER_PARENT, &[ItemId(1)]));
        assert!(asks.open(REPLICA, 2, 1, &[ItemId(1)]), "the first has ended");
        assert!(asks.open(REPLICA, 3, MOST_PER_PARENT - 1, &[ItemId(1)]));
        assert!(asks.open(REPLICA, 4, 1, &[ItemId(1)]), "the second has ended");
        assert!(!asks.open(REPLICA, 5, MOST_PER_PARENT, &[ItemId(1)]), "the third has not");
        assert!(asks.open(REPLICA, 6, 2 * MOST_PER_PARENT, &[ItemId(2), ItemId(3)]), "two items share it");
        for number in 10..1000 {
            assert!(asks.open(REPLICA, number, 1, &[ItemId(4)]));
        }
        assert!(asks.parents[&ItemId(4)].asks.len() <= ASKS_KEPT);
    }

    #[test]
    fn asks_that_have_ended_leave_nothing_however_many_items_share_them() {
        let (mut asks, withdrawn) = asks(vec![100]);
        let batch: Vec<ItemId> = (0..64).map(ItemId).collect();
        for number in 1..=64 {
            assert!(asks.open(REPLICA, number, 64, &batch));
        }
        assert!(asks.open(REPLICA, 100, 64, &batch));
        assert!(asks.shared.len() <= ASKS_KEPT + 1, "{} asks are kept in mind, one is open", asks.shared.len());
        let (first, others) = batch.split_first().unwrap();
        others.iter().for_each(|&id| asks.parent_ended(id));
        assert!(!withdrawn.lock().unwrap().contains(&100), "an item waits for it");
        asks.parent_ended(*first);
        assert!(withdrawn.lock().unwrap().contains(&100));
        assert!(asks.parents.is_empty() && asks.shared.is_empty());
    }

    #[test]
    fn a_sweep_names_the_items_that_wait_and_forgets_what_has_ended() {
        let (mut asks, _) = asks(vec![2]);
        assert!(asks.open(REPLICA, 1, 1, &[ItemId(1), ItemId(3)]));
        assert!(asks.open(REPLICA, 2, 1, &[ItemId(2)]));
        let second = Duration::from_secs(1);
        assert_eq!(asks.sweep(Time(0) + second, second), [(REPLICA, ItemId(2))]);
        assert_eq!((asks.parents.len(), asks.shared.len()), (1, 0));
        assert_eq!(asks.sweep(Time(1) + second, second), [], "not again so soon");
    }

    #[test]
    fn an_item_that_another_worker_computes_now_has_only_what_it_asked_there() {
        let (mut asks, withdrawn) = asks(vec![7]);
        let (other, session) = (ReplicaId(2), Noted { open: vec![7], ..Noted::default() });
        let withdrawn_there = session.withdrawn.clone();
        asks.sessions.insert(other, Box::new(session));
        assert!(asks.open(REPLICA, 7, 1, &[ItemId(1)]));
        assert!(asks.open(other, 7, 1, &[ItemId(1)]));
        assert_eq!(*withdrawn.lock().unwrap(), [7]);
        asks.lost(REPLICA);
        asks.parent_ended(ItemId(1));
        assert_eq!(*withdrawn_there.lock().unwrap(), [7]);
    }

    #[test]
    fn a_lost_worker_leaves_nothing() {
        let (mut asks, _) = asks(vec![]);
        assert!(asks.open(REPLICA, 7, 1, &[ItemId(1), ItemId(2)]));
        asks.lost(REPLICA);
        assert!(asks.parents.is_empty() && asks.shared.is_empty() && asks.sessions.is_empty());
        asks.parent_ended(ItemId(1));
    }
}
