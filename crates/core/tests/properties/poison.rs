//! Workers that die of certain items only: those are found, all others are answered. Here the judgement does not
//! rest on the reference's copy of the rule, but on who really killed.

use crate::world::{Arrival, End, Promise, World};
use jitney_core::config::limits::BatchLimits;
use jitney_core::config::limits::QueueLimits;
use jitney_core::config::rules::{PolicyChoice, Rules};
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{ItemId, Priority, ReplicaId};
use jitney_core::tables::outcome::Outcome;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Innocent,
    KillsInPredict,
    /// Kills while it is decoded, which may be before its batch's turn.
    KillsInDecode,
}

#[derive(Clone, Debug)]
struct Story {
    max_items: usize,
    replicas: usize,
    arrivals: Vec<(u8, Kind)>,
    choices: Vec<u8>,
}

fn stories(kinds: impl Strategy<Value = Kind>) -> impl Strategy<Value = Story> {
    let arrivals = prop::collection::vec((0u8..2, kinds), 1..50);
    (1usize..6, 1usize..4, arrivals, prop::collection::vec(any::<u8>(), 60))
        .prop_map(|(max_items, replicas, arrivals, choices)| Story { max_items, replicas, arrivals, choices })
}

fn predict_only() -> impl Strategy<Value = Kind> {
    prop_oneof![6 => Just(Kind::Innocent), 1 => Just(Kind::KillsInPredict)]
}

fn any_poison() -> impl Strategy<Value = Kind> {
    prop_oneof![8 => Just(Kind::Innocent), 1 => Just(Kind::KillsInPredict), 1 => Just(Kind::KillsInDecode)]
}

fn rules(max_items: usize, retry: bool) -> Rules {
    let hour = Duration::from_secs(3600);
    Rules {
        batch: BatchLimits { max_items, max_cost: u64::MAX },
        queue: QueueLimits { max_items: 1000, max_bytes: u64::MAX },
        boost: Duration::ZERO,
        request_timeout: hour,
        stream_timeout: hour,
        batch_timeout: hour,
        retry,
        joins: false,
        side_by_side: false,
        policy: PolicyChoice::Eager,
        target: None,
        max_wait: None,
    }
}

fn arrival(group: u8, fingerprint: u64) -> Arrival {
    Arrival { group, cost: 1, bytes: 1, priority: Priority::Normal, timeout: None, fingerprint }
}

struct Told {
    world: World,
    kinds: BTreeMap<ItemId, Kind>,
    deaths: usize,
    starts: BTreeMap<ItemId, usize>,
    /// Whose clients leave as soon as `predict` has begun.
    hasty: BTreeSet<u64>,
}

impl Told {
    fn poison(&self) -> usize {
        self.kinds.values().filter(|kind| **kind != Kind::Innocent).count()
    }

    fn holds(&self, batch: jitney_core::request::BatchId, wanted: Kind) -> bool {
        self.world.batches[&batch].items.iter().any(|id| self.kinds[id] == wanted)
    }

    /// One thing that the worker of this replica does.
    fn work(&mut self, id: ReplicaId) {
        let Some(held) = self.world.replicas.get(&id).map(|replica| replica.batches.clone()) else { return };
        let Some(&running) = held.first() else { return };
        if held.iter().any(|&batch| self.holds(batch, Kind::KillsInDecode)) {
            return self.die(id);
        }
        if !self.world.batches[&running].started {
            for item in &self.world.batches[&running].items {
                *self.starts.entry(*item).or_default() += 1;
            }
            return self.world.start(running);
        }
        for item in self.world.batches[&running].items.clone() {
            let asked = self.world.items.get(&item).map(|item| item.asked.fingerprint);
            if asked.is_some_and(|fingerprint| self.hasty.contains(&fingerprint)) {
                self.world.cancel(item);
            }
        }
        if self.holds(running, Kind::KillsInPredict) {
            return self.die(id);
        }
        for item in self.world.batches[&running].items.clone() {
            self.world.item_done(running, item);
        }
        // Not clean: these stories are about causes, and a learned pace would make admission refuse some of their items.
        self.world.batch_done(id, running, false);
    }

    fn die(&mut self, id: ReplicaId) {
        self.deaths += 1;
        self.world.lose(id, Loss::Crashed);
    }
}

fn tell(story: &Story, retry: bool) -> Told {
    tell_with(story, retry, BTreeSet::new())
}

fn tell_with(story: &Story, retry: bool, hasty: BTreeSet<u64>) -> Told {
    let world = World::new(rules(story.max_items, retry));
    let mut told = Told { world, kinds: BTreeMap::new(), deaths: 0, starts: BTreeMap::new(), hasty };
    told.world.up();
    let mut arrivals = story.arrivals.iter().enumerate();
    for turn in 0.. {
        let choice = story.choices[turn % story.choices.len()] as usize;
        told.world.wait(Duration::from_millis(1));
        // Arrivals and restarts are mixed with the work, in an order that the story chooses.
        if choice % 4 < 2
            && let Some((n, &(group, kind))) = arrivals.next()
        {
            let id = told.world.arrive(&arrival(group, n as u64)).expect("everything fits");
            told.kinds.insert(id, kind);
        } else if told.world.replicas.len() < story.replicas && choice.is_multiple_of(3)
            || told.world.replicas.is_empty()
        {
            told.world.up();
        } else {
            let replicas: Vec<_> = told.world.replicas.keys().copied().collect();
            told.work(replicas[choice / 4 % replicas.len()]);
        }
        if told.kinds.len() == story.arrivals.len() && told.world.items.is_empty() {
            return told;
        }
        assert!(turn < 20_000, "no end in sight: {:?}", told.world.items);
    }
    unreachable!("the loop only ends by return")
}

/// The fingerprints that are refused.
fn refused(told: &mut Told) -> BTreeSet<usize> {
    let mut refused = BTreeSet::new();
    for n in 0..told.kinds.len() {
        match told.world.arrive(&arrival(0, n as u64)) {
            Ok(id) => told.world.cancel(id),
            Err(outcome) => {
                assert_eq!(outcome, Outcome::Quarantined);
                refused.insert(n);
            }
        }
    }
    refused
}

fn guilty(told: &Told) -> BTreeSet<usize> {
    told.kinds.values().enumerate().filter(|(_, kind)| **kind != Kind::Innocent).map(|(n, _)| n).collect()
}

fn check(told: &mut Told) -> Result<(), TestCaseError> {
    for (id, kind) in &told.kinds {
        let expected = match kind {
            Kind::Innocent => End::Answered,
            _ => End::Failed(Outcome::WorkerLost),
        };
        prop_assert_eq!(told.world.ended[id], expected, "{:?} {:?}", id, kind);
    }
    let broken = told.world.broken(Promise::Suspects);
    prop_assert!(broken.is_empty(), "{:#?}", broken);
    prop_assert_eq!(refused(told), guilty(told), "exactly what killed is refused");
    told.world.wait(Duration::from_secs(60));
    prop_assert!(refused(told).is_empty(), "nothing is refused for longer than a minute");
    Ok(())
}

proptest! {
    #![proptest_config(crate::cases(128))]

    #[test]
    fn what_kills_in_predict_is_convicted_with_two_deaths_each_and_all_others_are_answered(
        story in stories(predict_only()),
    ) {
        let mut told = tell(&story, true);
        prop_assert!(told.deaths <= 2 * told.poison(), "{} deaths of {} fatal items", told.deaths, told.poison());
        check(&mut told)?;
    }

    #[test]
    fn what_kills_while_it_is_decoded_is_convicted_after_a_bounded_number_of_deaths(story in stories(any_poison())) {
        let mut told = tell(&story, true);
        prop_assert!(told.deaths <= 4 * told.poison(), "{} deaths of {} fatal items", told.deaths, told.poison());
        check(&mut told)?;
    }

    #[test]
    fn whose_client_leaves_is_convicted_as_well_and_whoever_left_beside_it_is_not(
        story in stories(predict_only()),
        retry in any::<bool>(),
        hasty in prop::collection::btree_set(0u64..50, 0..50),
    ) {
        let mut told = tell_with(&story, retry, hasty);
        for (n, &(group, kind)) in story.arrivals.iter().enumerate() {
            let mut tries = 0;
            while let Ok(id) = told.world.arrive(&arrival(group, n as u64)) {
                (_, tries) = (told.kinds.insert(id, kind), tries + 1);
                prop_assert!(tries <= 2, "{}: {:?} is admitted again and again", n, kind);
                while !told.world.items.is_empty() {
                    let busy = told.world.replicas.iter().find(|(_, replica)| !replica.batches.is_empty());
                    let replica = busy.map(|(id, _)| *id);
                    match replica {
                        Some(replica) => told.work(replica),
                        None => told.world.up(),
                    }
                }
                let ended = told.world.ended[&id];
                if kind == Kind::Innocent {
                    let expected = if told.hasty.contains(&(n as u64)) { End::Cancelled } else { End::Answered };
                    prop_assert_eq!(ended, expected);
                    break;
                }
            }
        }
        let poison = story.arrivals.iter().filter(|(_, kind)| *kind != Kind::Innocent).count();
        prop_assert!(told.deaths <= 2 * poison, "{} deaths of {} fatal items", told.deaths, poison);
        let guilty = story.arrivals.iter().enumerate().filter(|(_, (_, kind))| *kind != Kind::Innocent);
        let guilty: BTreeSet<usize> = guilty.map(|(n, _)| n).collect();
        told.kinds = (0..story.arrivals.len()).map(|n| (ItemId(n as u64), story.arrivals[n].1)).collect();
        prop_assert_eq!(refused(&mut told), guilty, "exactly what killed is refused");
        let broken = told.world.broken(Promise::Suspects);
        prop_assert!(broken.is_empty(), "{:#?}", broken);
    }

    #[test]
    fn without_retry_no_item_starts_twice_and_only_company_of_poison_is_lost(story in stories(predict_only())) {
        let told = tell(&story, false);
        prop_assert!(told.starts.values().all(|&starts| starts == 1), "{:?}", told.starts);
        prop_assert!(told.deaths <= told.poison());
        let broken = told.world.broken(Promise::Suspects);
        prop_assert!(broken.is_empty(), "{:#?}", broken);
        let lost = told.world.ended.values().filter(|end| **end == End::Failed(Outcome::WorkerLost)).count();
        prop_assert!(lost <= told.deaths * story.max_items, "{} lost in {} deaths", lost, told.deaths);
    }
}
