//! The places that there should be in the cluster. Names are never used twice: the actor of a place that was given up may live on
//! for a while.

use crate::workers::needs::RayNeeds;
use jitney_core::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// The first pause before another place is asked for, after one that never joined.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What a place waits for while nothing is in its way.
pub(crate) const STARTING: &str = "Ray starts an agent";

/// Whom a place is for: a deployment, or (`None`) workers that import a target.
pub(crate) type For = Option<String>;

/// How many places some workers need.
#[derive(Clone, Debug)]
pub(crate) struct PlaceDemand {
    pub(crate) count: usize,
    pub(crate) needs: RayNeeds,
}

/// What is known about the agent of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentState {
    /// It is connected.
    pub(crate) is_there: bool,
    /// The front has a worker in it, or had one that may come back.
    pub(crate) has_worker: bool,
}

#[derive(Debug)]
struct Place {
    number: u64,
    whose: For,
    needs: RayNeeds,
    /// Its agent has joined once.
    has_joined: bool,
    /// Its actor has ended. It is kept for as long as the front has not given up its worker.
    is_gone: bool,
    /// Its agent has joined, and cannot be reached.
    is_lost: bool,
    /// Why it has no machine yet.
    pending: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    until: Time,
}

/// All places, by name.
#[derive(Debug)]
pub(crate) struct Places {
    front: String,
    next: u64,
    all: BTreeMap<String, Place>,
    failures: BTreeMap<For, Failures>,
    /// What is wanted has changed since it was asked for.
    is_changed: bool,
}

impl Places {
    /// No places yet, of a front with this name.
    pub(crate) fn new(front: String) -> Places {
        Places { front, next: 0, all: BTreeMap::new(), failures: BTreeMap::new(), is_changed: false }
    }

    /// Whether an agent is in a place for these workers.
    pub(crate) fn is_for(&self, agent: &str, whose: Option<&str>) -> bool {
        self.all.get(agent).is_some_and(|place| place.whose.as_deref() == whose)
    }

    /// An agent has joined: nothing is pending there.
    pub(crate) fn joined(&mut self, agent: &str) {
        if let Some(place) = self.all.get_mut(agent) {
            (place.has_joined, place.pending) = (true, None);
            let whose = place.whose.clone();
            self.failures.remove(&whose);
        }
    }

    /// The worker in a place belongs to this deployment from now on.
    pub(crate) fn give(&mut self, agent: &str, whose: &str, needs: &RayNeeds) {
        if let Some(place) = self.all.get_mut(agent) {
            (place.whose, place.needs) = (Some(whose.to_owned()), needs.clone());
        }
    }

    /// Why places have no machine yet.
    pub(crate) fn pending(&mut self, mut why: BTreeMap<String, String>) {
        for (name, place) in &mut self.all {
            place.pending = why.remove(name);
        }
    }

    /// The actor of a place has ended. True if that was not known.
    pub(crate) fn gone(&mut self, now: Time, name: &str) -> bool {
        let Some(place) = self.all.get_mut(name).filter(|place| !place.is_gone) else { return false };
        (place.is_gone, self.is_changed) = (true, true);
        if !place.has_joined {
            let failures = self.failures.entry(place.whose.clone()).or_insert(Failures { count: 0, until: now });
            failures.until = now + (FIRST_PAUSE * 2u32.saturating_pow(failures.count)).min(LONGEST_PAUSE);
            failures.count += 1;
        }
        true
    }

    /// What workers wait for that have no place, in words that clients may read; `None` if no place was asked for.
    pub(crate) fn why(&self, whose: Option<&str>) -> Option<String> {
        let mine = || self.all.values().filter(|place| place.whose.as_deref() == whose && !place.has_joined);
        if let Some(pending) = mine().find_map(|place| place.pending.clone()) {
            return Some(pending);
        }
        if self.failures.contains_key(&whose.map(str::to_owned)) {
            return Some("Ray could not start an agent; see the log".into());
        }
        mine().next().map(|_| STARTING.into())
    }

    /// Adds places that are missing, and gives up those that are too many or lost. True if what is wanted has changed since the
    /// last time.
    pub(crate) fn follow(
        &mut self,
        now: Time,
        demand: &BTreeMap<For, PlaceDemand>,
        agent: impl Fn(&str) -> AgentState,
    ) -> bool {
        let before = self.all.len();
        let mut is_changed = std::mem::take(&mut self.is_changed);
        self.all.retain(|name, place| {
            let AgentState { is_there, has_worker } = agent(name);
            is_changed |= std::mem::replace(&mut place.is_lost, place.has_joined && !is_there) != place.is_lost;
            let is_usable = !place.is_gone && !place.is_lost;
            has_worker || is_usable && demand.contains_key(&place.whose)
        });
        is_changed |= self.all.len() < before;
        for (whose, PlaceDemand { count, needs }) in demand {
            let mut usable: Vec<(bool, bool, u64, String)> = self
                .all
                .iter()
                .filter(|(_, place)| place.whose == *whose && !place.is_gone && !place.is_lost)
                .map(|(name, place)| (agent(name).has_worker, place.has_joined, place.number, name.clone()))
                .collect();
            // Those that nothing uses go first: those that have not joined, the youngest of them first.
            usable.sort_by_key(|(has_worker, has_joined, number, _)| (*has_worker, *has_joined, u64::MAX - number));
            let surplus = usable.len().saturating_sub(*count);
            for (_, _, _, name) in usable.iter().take(surplus).filter(|(has_worker, ..)| !has_worker) {
                self.all.remove(name);
                is_changed = true;
            }
            if self.failures.get(whose).is_some_and(|failures| now < failures.until) {
                continue;
            }
            for _ in usable.len()..*count {
                self.add(whose, needs);
                is_changed = true;
            }
        }
        is_changed
    }

    /// What the provider is to see to.
    pub(crate) fn wanted(&self) -> BTreeMap<String, RayNeeds> {
        let all = self.all.iter().filter(|(_, place)| !place.is_gone);
        all.map(|(name, place)| (name.clone(), place.needs.clone())).collect()
    }

    /// Those of them whose agent cannot be reached.
    pub(crate) fn lost(&self) -> Vec<String> {
        let lost = self.all.iter().filter(|(_, place)| place.is_lost && !place.is_gone);
        lost.map(|(name, _)| name.clone()).collect()
    }

    fn add(&mut self, whose: &For, needs: &RayNeeds) {
        self.next += 1;
        // No deployment has a name with a dot at the front.
        let name = format!("{}/{}/{}", self.front, whose.as_deref().unwrap_or(".import"), self.next);
        let place = Place {
            number: self.next,
            whose: whose.clone(),
            needs: needs.clone(),
            has_joined: false,
            is_gone: false,
            is_lost: false,
            pending: None,
        };
        self.all.insert(name, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn at(seconds: u64) -> Time {
        Time(0) + Duration::from_secs(seconds)
    }

    /// Places of one deployment `a`, with the agents that are there and those that have a worker.
    #[derive(Debug)]
    struct Rig {
        places: Places,
        there: BTreeSet<String>,
        working: BTreeSet<String>,
    }

    impl Rig {
        fn new() -> Rig {
            Rig { places: Places::new("f".into()), there: BTreeSet::new(), working: BTreeSet::new() }
        }

        fn follow(&mut self, seconds: u64, count: usize) -> Vec<String> {
            let demand = BTreeMap::from([(Some("a".to_owned()), PlaceDemand { count, needs: RayNeeds::default() })]);
            let agent = |name: &str| AgentState {
                is_there: self.there.contains(name),
                has_worker: self.working.contains(name),
            };
            self.places.follow(at(seconds), &demand, agent);
            self.places.wanted().into_keys().collect()
        }

        fn join(&mut self, name: &str, works: bool) {
            self.places.joined(name);
            self.there.insert(name.into());
            if works {
                self.working.insert(name.into());
            }
        }
    }

    #[test]
    fn places_follow_the_number_of_replicas_and_no_name_is_used_twice() {
        let mut rig = Rig::new();
        assert_eq!(rig.follow(0, 1), ["f/a/1"]);
        rig.join("f/a/1", true);
        assert_eq!(rig.follow(0, 3), ["f/a/1", "f/a/2", "f/a/3"]);
        rig.join("f/a/3", false);
        // One that waits for a machine goes before one that has joined, and none with a worker goes.
        assert_eq!(rig.follow(0, 2), ["f/a/1", "f/a/3"]);
        assert_eq!(rig.follow(0, 0), ["f/a/1"]);
        rig.working.clear();
        assert_eq!(rig.follow(0, 0), Vec::<String>::new());
        assert_eq!(rig.follow(0, 1), ["f/a/4"]);
    }

    #[test]
    fn another_place_is_asked_for_at_once_when_an_agent_is_lost_and_the_old_one_stays_while_its_worker_may_come_back() {
        let mut rig = Rig::new();
        rig.follow(0, 1);
        rig.join("f/a/1", true);
        rig.there.clear();
        assert_eq!((rig.follow(0, 1), rig.places.lost()), (vec!["f/a/1".into(), "f/a/2".into()], vec!["f/a/1".into()]));
        rig.working.clear();
        assert_eq!((rig.follow(0, 1), rig.places.lost()), (vec!["f/a/2".into()], vec![]));
    }

    #[test]
    fn an_actor_that_ended_is_not_asked_for_again_under_its_name_and_failures_make_a_pause() {
        let mut rig = Rig::new();
        rig.follow(0, 1);
        assert!(rig.places.gone(at(0), "f/a/1") && !rig.places.gone(at(0), "f/a/1"));
        assert_eq!(rig.follow(0, 1), Vec::<String>::new());
        assert_eq!(rig.places.why(Some("a")).as_deref(), Some("Ray could not start an agent; see the log"));
        assert_eq!(rig.follow(1, 1), ["f/a/2"]);
        rig.places.gone(at(1), "f/a/2");
        assert_eq!(rig.follow(2, 1), Vec::<String>::new());
        assert_eq!(rig.follow(3, 1), ["f/a/3"]);
        rig.join("f/a/3", true);
        rig.places.gone(at(4), "f/a/3");
        rig.working.clear();
        assert_eq!(rig.follow(4, 1), ["f/a/4"], "one that had joined is replaced at once");
    }

    #[test]
    fn what_a_place_waits_for_is_said_until_its_agent_has_joined() {
        let mut rig = Rig::new();
        assert_eq!(rig.places.why(Some("a")), None);
        rig.follow(0, 1);
        assert_eq!(rig.places.why(Some("a")).as_deref(), Some("Ray starts an agent"));
        rig.places.pending(BTreeMap::from([("f/a/1".into(), "the Ray cluster has no free GPU".into())]));
        assert_eq!(rig.places.why(Some("a")).as_deref(), Some("the Ray cluster has no free GPU"));
        rig.join("f/a/1", false);
        assert_eq!(rig.places.why(Some("a")), None);
    }

    #[test]
    fn the_place_in_which_a_target_was_imported_becomes_that_of_the_first_replica() {
        let mut rig = Rig::new();
        let import = BTreeMap::from([(None, PlaceDemand { count: 1, needs: RayNeeds::default() })]);
        rig.places.follow(at(0), &import, |_| AgentState::default());
        rig.join("f/.import/1", true);
        assert!(rig.places.is_for("f/.import/1", None));
        rig.places.give("f/.import/1", "a", &RayNeeds::default());
        assert_eq!(rig.follow(0, 1), ["f/.import/1"]);
        assert!(rig.places.is_for("f/.import/1", Some("a")));
    }
}
