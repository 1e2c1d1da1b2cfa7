//! Who watches the live page, and what was sampled for them.

use crate::engine::server_state::live::machine::Machine;
use crate::engine::server_state::live::points::{Columns, KEPT};
use crate::engine::server_state::live::sampled::Sampled;
use crate::engine::server_state::live::workers::KnownWorkers;
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Watchers at a time.
pub const MOST_WATCHERS: usize = 16;
/// Events that a watcher may leave unread. One that leaves more is dropped.
const UNREAD: usize = 4;

/// The events of one watcher. The stream ends with the sender.
pub(crate) type WatcherEvents = mpsc::Receiver<Bytes>;

/// The watchers of a server, and its samples.
#[derive(Debug, Default)]
pub struct LiveHub {
    watchers: Mutex<Watchers>,
    samples: Mutex<Samples>,
    /// The first events of watchers, each with the number of samples that it holds: one second has one of each, however many watchers come.
    history: Mutex<Option<(u64, Bytes)>>,
    snapshot: tokio::sync::Mutex<Option<(u64, Bytes)>>,
}

#[derive(Debug, Default)]
struct Watchers {
    /// The one that has watched for longest first.
    senders: Vec<mpsc::Sender<Bytes>>,
    /// The server ends: a further watcher gets what is known, and no more.
    is_closed: bool,
}

/// What was sampled.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// By deployment.
    pub(crate) deployments: BTreeMap<String, Sampled>,
    pub(crate) workers: KnownWorkers,
    pub(crate) machine: Machine,
    /// How many samples were taken: a page knows by it which points it has.
    pub(crate) taken: u64,
}

impl Samples {
    /// Whether something has happened in a deployment since its last sample: then its outcomes differ, or items wait.
    pub(crate) fn is_busy(&self, name: &str, outcomes: &[u64], queued: u64) -> bool {
        self.deployments.get(name).is_none_or(|sampled| sampled.is_busy(outcomes, queued))
    }
}

/// The first event of a watcher.
#[derive(Serialize)]
struct History {
    taken: u64,
    deployments: BTreeMap<String, Columns>,
}

/// The last event of a watcher that another one has replaced.
#[derive(Serialize)]
struct Replaced {
    most_watchers: usize,
}

impl LiveHub {
    /// A further watcher. If there are as many as there may be, it replaces the one that has watched for longest: those
    /// that never read could otherwise keep all others out.
    pub(crate) fn watch(&self) -> WatcherEvents {
        let mut watchers = self.lock();
        watchers.senders.retain(|watcher| !watcher.is_closed());
        if watchers.senders.len() >= MOST_WATCHERS {
            // One that has left its events unread does not get this one either.
            let _ = watchers.senders.remove(0).try_send(event("replaced", &Replaced { most_watchers: MOST_WATCHERS }));
        }
        let (sender, events) = mpsc::channel(UNREAD);
        if !watchers.is_closed {
            watchers.senders.push(sender);
        }
        events
    }

    /// How many watch.
    pub(crate) fn watchers(&self) -> usize {
        self.lock().senders.iter().filter(|watcher| !watcher.is_closed()).count()
    }

    /// Sends an event to all watchers. Those that have left and those that do not read are dropped.
    pub(crate) fn send(&self, event: &Bytes) {
        self.lock().senders.retain(|watcher| watcher.try_send(event.clone()).is_ok());
    }

    /// Ends all streams, now and later.
    pub(crate) fn close(&self) {
        *self.lock() = Watchers { senders: Vec::new(), is_closed: true };
    }

    /// The event with the last five minutes.
    pub(crate) fn history(&self) -> Bytes {
        let mut last = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = self.samples();
        if let Some((_, history)) = last.as_ref().filter(|(taken, _)| *taken == samples.taken) {
            return history.clone();
        }
        let columns = samples.deployments.iter().map(|(name, sampled)| (name.clone(), sampled.ring.columns(KEPT)));
        let history = History { taken: samples.taken, deployments: columns.collect() };
        drop(samples);
        let made = event("history", &history);
        *last = Some((history.taken, made.clone()));
        made
    }

    /// The event with the snapshot of the last sample. `make` makes it for the first one that asks.
    pub(crate) async fn snapshot(&self, make: impl Future<Output = Bytes>) -> Bytes {
        let mut last = self.snapshot.lock().await;
        let taken = self.samples().taken;
        if let Some((_, snapshot)) = last.as_ref().filter(|(of, _)| *of == taken) {
            return snapshot.clone();
        }
        let snapshot = make.await;
        *last = Some((taken, snapshot.clone()));
        snapshot
    }

    pub(crate) fn samples(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One server-sent event. JSON has no line breaks.
pub(crate) fn event(name: &str, data: &impl Serialize) -> Bytes {
    let mut text = format!("event: {name}\ndata: ").into_bytes();
    text.extend(serde_json::to_vec(data).unwrap_or_default());
    text.extend_from_slice(b"\n\n");
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seventeenth_watcher_takes_the_place_of_the_first() {
        let hub = LiveHub::default();
        let mut watchers: Vec<_> = (0..MOST_WATCHERS).map(|_| hub.watch()).collect();
        assert_eq!(hub.watchers(), MOST_WATCHERS);
        watchers.push(hub.watch());
        assert_eq!(hub.watchers(), MOST_WATCHERS);
        assert_eq!(watchers[0].try_recv().unwrap(), "event: replaced\ndata: {\"most_watchers\":16}\n\n");
        assert!(watchers[0].is_closed() && !watchers[1].is_closed());
        watchers.pop();
        watchers.push(hub.watch());
        assert!(!watchers[1].is_closed(), "one had left");
    }

    #[test]
    fn a_watcher_that_does_not_read_is_dropped_and_the_others_get_all() {
        let hub = LiveHub::default();
        let (mut reader, mut sleeper) = (hub.watch(), hub.watch());
        for place in 0..10 {
            hub.send(&Bytes::from(vec![place]));
            assert_eq!(reader.try_recv().unwrap(), [place][..]);
        }
        assert_eq!(hub.watchers(), 1);
        let kept: Vec<Bytes> = std::iter::from_fn(|| sleeper.try_recv().ok()).collect();
        assert_eq!(kept.len(), UNREAD);
        assert!(sleeper.is_closed());
        hub.close();
        assert!(reader.try_recv().is_err() && reader.is_closed());
        assert!(hub.watch().is_closed(), "its stream ends at once");
    }

    #[tokio::test]
    async fn the_first_events_are_made_once_for_each_sample() {
        let hub = LiveHub::default();
        let count = std::cell::Cell::new(0);
        let make = async || {
            count.set(count.get() + 1);
            Bytes::from_static(b"snapshot")
        };
        for taken in 1..3 {
            hub.samples().taken = taken;
            let histories = [hub.history(), hub.history()];
            assert_eq!(histories[0].as_ptr(), histories[1].as_ptr());
            assert!(histories[0].ends_with(format!("\"taken\":{taken},\"deployments\":{{}}}}\n\n").as_bytes()));
            assert_eq!(hub.snapshot(make()).await, hub.snapshot(make()).await);
            assert_eq!(count.get(), taken);
        }
    }

    #[test]
    fn an_event_is_two_lines_and_an_empty_one() {
        assert_eq!(event("x", &["a\nb"]), "event: x\ndata: [\"a\\nb\"]\n\n");
    }
}
