//! What batches take on each class of replicas: a fast and a slow machine must not be learned as one.

use crate::learn::group_models::GroupModels;
use crate::request::ReplicaClass;

/// The models of all classes.
#[derive(Clone, Debug, Default)]
pub struct ClassModels {
    first: (ReplicaClass, GroupModels),
    others: Vec<(ReplicaClass, GroupModels)>,
}

impl ClassModels {
    /// The models of a class. Those of the first class stand in where it has none yet, or where no class is known.
    pub fn of(&self, class: Option<ReplicaClass>) -> &GroupModels {
        let own = self.others.iter().find(|(other, _)| Some(*other) == class);
        &own.unwrap_or(&self.first).1
    }

    /// The models of a class, to learn from one of its replicas. The first class that is learned from is the first class.
    pub fn learn_of(&mut self, class: ReplicaClass) -> &mut GroupModels {
        if self.others.is_empty() && !self.first.1.all().is_known() {
            self.first.0 = class;
        }
        if self.first.0 == class {
            return &mut self.first.1;
        }
        let index = self.others.iter().position(|(other, _)| *other == class).unwrap_or_else(|| {
            self.others.push((class, GroupModels::default()));
            self.others.len() - 1
        });
        &mut self.others[index].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::batch_cost::BatchCost;
    use crate::request::GroupId;
    use std::time::Duration;

    #[test]
    fn a_slow_class_does_not_change_what_is_known_of_a_fast_one() {
        let mut models = ClassModels::default();
        let (fast, slow) = (ReplicaClass(7), ReplicaClass(8));
        for (class, ms) in [(fast, 10), (slow, 80)].repeat(10) {
            models.learn_of(class).learn(GroupId(1), BatchCost::alike(4, 1), Duration::from_millis(ms));
        }
        let ms = |class| (models.of(class).all().seconds(4) * 1e3).round();
        assert_eq!((ms(Some(fast)), ms(Some(slow))), (10.0, 80.0));
        assert_eq!((ms(None), ms(Some(ReplicaClass(9)))), (10.0, 10.0), "a class that was never seen");
    }
}
