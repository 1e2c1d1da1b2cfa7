//! What batches take, of the deployment and of each group key: a small picture does not cost what a large one does.

use crate::learn::batch_cost::BatchCost;
use crate::learn::cost_model::CostModel;
use crate::learn::size_model::SizeModel;
use crate::learn::step_model::{StayModel, StepModel};
use crate::request::GroupId;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// Most groups that have their own cost model. Beyond it, the group that was used least recently is forgotten.
const MOST_GROUPS: usize = 32;

/// The models of a deployment: one of all groups together, and one of each group.
#[derive(Clone, Debug, Default)]
pub struct GroupModels {
    all: CostModel,
    /// The one group seen so far: while there is no other, the model of all is its own.
    only: Option<GroupId>,
    groups: FxHashMap<GroupId, Group>,
    learned: u64,
    /// How long one step takes, for a model that works in steps.
    pub steps: StepModel,
    /// How long one item stays in the model, for a model whose items run side by side.
    pub stays: StayModel,
}

#[derive(Clone, Debug)]
struct Group {
    cost_model: CostModel,
    /// The batches of the deployment when it was seen last.
    seen: u64,
    /// Its own batches.
    batches: u64,
}

impl GroupModels {
    /// Learns that a batch of a group occupied a replica for `length`.
    pub fn learn(&mut self, group: GroupId, load: BatchCost, length: Duration) {
        let only = *self.only.get_or_insert(group);
        if only != group || !self.groups.is_empty() {
            self.keep_the_only_one();
            let guess = self.all.as_a_guess();
            let seen = self.learned + 1;
            let own = self.group(group, guess);
            own.cost_model.learn(load, length);
            own.seen = seen;
            own.batches += 1;
        }
        self.learned += 1;
        self.all.learn(load, length);
    }

    /// Learns batches of one group that were measured before the deployment served requests. Does nothing if the group
    /// has its own cost model already: batches of real requests say more.
    pub fn profiled_of(&mut self, group: GroupId, batches: impl IntoIterator<Item = (BatchCost, Duration)>) {
        if self.own(group).is_some() {
            return;
        }
        self.keep_the_only_one();
        for (load, length) in batches {
            self.group(group, CostModel::default()).cost_model.learn(load, length);
            self.all.learn(load, length);
        }
    }

    /// Gives the only group so far its own cost model, because a second group has arrived.
    fn keep_the_only_one(&mut self) {
        if let (Some(only), true) = (self.only, self.groups.is_empty()) {
            self.groups.insert(only, Group { cost_model: self.all.clone(), seen: 0, batches: self.learned });
        }
    }

    /// The model of a group, which begins with `guess`.
    fn group(&mut self, group: GroupId, guess: CostModel) -> &mut Group {
        if self.groups.len() == MOST_GROUPS && !self.groups.contains_key(&group) {
            let oldest = self.groups.iter().min_by_key(|(_, group)| group.seen).map(|(group, _)| *group);
            oldest.map(|group| self.groups.remove(&group));
        }
        self.groups.entry(group).or_insert(Group { cost_model: guess, seen: 0, batches: 0 })
    }

    /// Learns what is not of one group: what was measured before anything was served, or a step.
    pub fn profiled(&mut self, load: BatchCost, length: Duration) {
        self.all.learn(load, length);
    }

    /// That of the deployment, by the number of items.
    pub fn all(&self) -> &SizeModel {
        self.all.by_items()
    }

    /// That of a group, by the number of items.
    pub fn of(&self, group: GroupId) -> &SizeModel {
        self.cost_model_of(group).by_items()
    }

    /// What batches of the deployment take.
    pub fn cost_model(&self) -> &CostModel {
        &self.all
    }

    /// The groups that have their own curve.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.groups.keys().copied()
    }

    /// What batches of a group take: its own curve, or else the deployment's.
    pub fn cost_model_of(&self, group: GroupId) -> &CostModel {
        self.groups.get(&group).map_or(&self.all, |group| &group.cost_model)
    }

    /// What was measured of a group's own batches, and how many those are.
    pub fn own(&self, group: GroupId) -> Option<(&CostModel, u64)> {
        match self.groups.get(&group) {
            Some(group) => Some((&group.cost_model, group.batches)),
            None if self.groups.is_empty() && self.only == Some(group) => Some((&self.all, self.learned)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn groups_of_different_cost_are_told_apart() {
        let mut group_models = GroupModels::default();
        for _ in 0..20 {
            [1, 4].iter().for_each(|&items| {
                group_models.learn(GroupId(1), BatchCost::alike(items, 1), 10 * MS + MS * items as u32);
                group_models.learn(GroupId(2), BatchCost::alike(items, 1), 100 * MS + 10 * MS * items as u32);
            });
        }
        let ms = |group| (group_models.of(GroupId(group)).seconds(4) * 1e3).round();
        assert_eq!((ms(1), ms(2)), (14.0, 140.0));
        assert!((14.0..140.0).contains(&ms(3)), "a group that was never seen has the deployment's: {}", ms(3));
    }

    #[test]
    fn a_new_group_begins_with_the_model_of_all_and_soon_has_its_own() {
        let mut group_models = GroupModels::default();
        (0..50).for_each(|n| group_models.learn(GroupId(1), BatchCost::alike(1 + n % 4, 1), 10 * MS));
        (0..6).for_each(|_| group_models.learn(GroupId(2), BatchCost::alike(4, 1), 50 * MS));
        let seconds = group_models.of(GroupId(2)).seconds(4);
        assert!((0.035..=0.055).contains(&seconds), "{seconds}");
        assert!(group_models.of(GroupId(1)).seconds(4) < 0.012);
    }

    #[test]
    fn what_was_measured_of_a_group_is_not_that_of_another() {
        let measured =
            |ms: u64| [1, 4].map(|items| (BatchCost::alike(items, 1), Duration::from_millis(ms) * items as u32));
        let mut group_models = GroupModels::default();
        group_models.profiled_of(GroupId(1), measured(1));
        group_models.profiled_of(GroupId(2), measured(100));
        group_models.profiled_of(GroupId(2), measured(500)); // another replica, later
        let ms = |group_models: &GroupModels, group| (group_models.of(GroupId(group)).seconds(4) * 1e3).round();
        assert_eq!((ms(&group_models, 1), ms(&group_models, 2)), (4.0, 400.0));
        assert_eq!(group_models.own(GroupId(1)).map(|(_, batches)| batches), Some(0), "none was served");
        (0..50).for_each(|_| group_models.learn(GroupId(2), BatchCost::alike(4, 1), 200 * MS));
        assert!((3.9..4.1).contains(&ms(&group_models, 1)), "{}", ms(&group_models, 1));
        assert!((190.0..230.0).contains(&ms(&group_models, 2)), "{}", ms(&group_models, 2));
    }

    #[test]
    fn a_group_that_was_served_keeps_its_model_when_another_is_measured() {
        let mut group_models = GroupModels::default();
        (0..20).for_each(|_| group_models.learn(GroupId(1), BatchCost::alike(4, 1), 10 * MS));
        for group in [1, 2] {
            group_models.profiled_of(GroupId(group), [(BatchCost::alike(4, 1), 500 * MS)]);
        }
        let own =
            |group| group_models.own(GroupId(group)).map(|(model, batches)| (model.by_items().seconds(4), batches));
        assert!(own(1).is_some_and(|(seconds, batches)| seconds < 0.011 && batches == 20), "{:?}", own(1));
        assert!(own(2).is_some_and(|(seconds, batches)| seconds > 0.49 && batches == 0), "{:?}", own(2));
    }

    #[test]
    fn groups_are_bounded() {
        let mut group_models = GroupModels::default();
        (0..1000).for_each(|group| group_models.learn(GroupId(group), BatchCost::one(1), MS));
        assert_eq!(group_models.groups.len(), MOST_GROUPS);
        assert!(group_models.groups.contains_key(&GroupId(999)));
    }
}
