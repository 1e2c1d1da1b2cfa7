//! What is learned of open sets. Of a model that works in steps, next to what a step takes: what a newcomer costs, and for how long
//! an item stays. Of items that run side by side: for how long an item stays.

use crate::learn::size_model::SizeModel;
use std::time::Duration;

/// Items that must have ended before anything is concluded from how many steps they took.
const ENDS_BELIEVED_AFTER: f64 = 8.0;
/// The mean number of steps follows a change within about this many items: their lengths scatter much more than durations.
const ENDS_REMEMBERED: f64 = 256.0;
/// The other means follow a change within about this many steps.
const STEPS_REMEMBERED: u64 = 64;

/// Newcomers may always delay the others by so much, in seconds.
const LEAST_DELAY_S: f64 = 0.001;
/// Whatever a worker reports, no step has a smaller share of the items.
const LEAST_SHARE: f64 = 0.01;

/// A mean in which the newest values count most.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    count: u64,
    value: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.count += 1;
        self.value += (value - self.value) / self.count.min(STEPS_REMEMBERED) as f64;
    }
}

/// What is learned from the steps and the ends of items.
#[derive(Clone, Debug, Default)]
pub struct StepModel {
    /// Seconds for each newcomer.
    joins: Mean,
    /// Steps of all items together, also of those that have not ended …
    steps: f64,
    /// … and items that have ended, the older ones of both faded. The first items that end are the short ones: their own steps
    /// say too little of the others.
    ends: f64,
    /// Items that a step computes, and items that its replica has meanwhile: those of another group key wait for their turn.
    active: Mean,
    items: Mean,
    /// Seconds of a step. Where a step of one key takes longer than of another, no line through the sizes says it.
    took: Mean,
}

impl StepModel {
    /// So many newcomers joined in this time, in seconds.
    pub fn joined(&mut self, newcomers: usize, seconds: f64) {
        if newcomers > 0 {
            self.joins.add(seconds / newcomers as f64);
        }
    }

    /// A step computed `active` of the `items` that its replica had, in this time, in seconds.
    pub fn stepped(&mut self, active: usize, items: usize, seconds: f64) {
        self.steps += active as f64;
        self.active.add(active as f64);
        self.items.add(items.max(active) as f64);
        self.took.add(seconds);
    }

    /// An item has ended.
    pub fn ended(&mut self) {
        if self.ends >= ENDS_REMEMBERED {
            self.steps *= 1.0 - 1.0 / ENDS_REMEMBERED;
            self.ends -= 1.0;
        }
        self.ends += 1.0;
    }

    /// What a newcomer costs, in seconds; 0 while none was measured.
    pub fn join_s(&self) -> f64 {
        self.joins.value
    }

    /// The mean number of steps of an item; `None` until enough items have ended.
    pub fn steps(&self) -> Option<f64> {
        (self.ends >= ENDS_BELIEVED_AFTER).then(|| (self.steps / self.ends).max(1.0))
    }

    /// The share of the items of a replica that a step computes.
    fn share(&self) -> f64 {
        if self.items.value > 0.0 { (self.active.value / self.items.value).max(LEAST_SHARE) } else { 1.0 }
    }

    /// Most newcomers at one boundary, next to `active` items. All of them together delay the others by about the launch cost of
    /// a step, or by `LEAST_DELAY_S`: the next ones join when the front knows of these, which takes longer than a step that
    /// computes nothing. But at least as many as end in a step, or the replica would never be full.
    pub fn most_joins(&self, size_model: &SizeModel, active: usize) -> usize {
        let join_s = self.join_s();
        if join_s <= 0.0 || !size_model.is_known() {
            return usize::MAX;
        }
        let by_delay = (size_model.launch_s().max(LEAST_DELAY_S) / join_s) as usize;
        let by_ends = self.steps().map_or(0, |steps| ((active + 1) as f64 / steps).ceil() as usize);
        by_delay.max(by_ends).max(1)
    }

    /// What a step takes in a replica that holds this many items, in seconds: as long as the last steps, and as much longer as it
    /// is larger than they were.
    pub fn step_s(&self, size_model: &SizeModel, items: f64) -> f64 {
        let step = |items: f64| size_model.seconds(items.round().max(1.0) as usize);
        let of_lately = if self.took.count > 0 { self.took.value / step(self.active.value) } else { 1.0 };
        step(items * self.share()) * of_lately
    }

    /// For how long an item stays in a replica that holds this many items, in seconds; `None` while too little has been
    /// measured.
    pub fn stay_s(&self, size_model: &SizeModel, items: f64) -> Option<f64> {
        let steps = self.steps().filter(|_| size_model.is_known())?;
        Some(steps / self.share() * self.step_s(size_model, items) + items * self.join_s())
    }
}

/// What is learned from the first parts and the ends of items that run side by side.
#[derive(Clone, Debug, Default)]
pub struct StayModel {
    /// Seconds from joining to the end.
    stays: Mean,
    /// Seconds from joining to the first part, of items whose clients take parts.
    first_parts: Mean,
}

impl StayModel {
    /// An item has ended, this long after it joined.
    pub fn ended(&mut self, after: Duration) {
        self.stays.add(after.as_secs_f64());
    }

    /// The first part of an item was sent, this long after it joined.
    pub fn first_part(&mut self, after: Duration) {
        self.first_parts.add(after.as_secs_f64());
    }

    /// For how long an item stays, in seconds; `None` until enough items have ended.
    pub fn stay_s(&self) -> Option<f64> {
        (self.stays.count >= ENDS_BELIEVED_AFTER as u64).then_some(self.stays.value)
    }

    /// The time from joining to the first part, in seconds; of whole answers, to the end.
    pub fn first_part_s(&self) -> Option<f64> {
        if self.first_parts.count > 0 { Some(self.first_parts.value) } else { self.stay_s() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 ms + 1 ms for each item.
    fn size_model() -> SizeModel {
        let mut size_model = SizeModel::default();
        for items in [1, 4, 16].repeat(8) {
            size_model.learn(items, Duration::from_millis(8 + items as u64));
        }
        size_model
    }

    #[test]
    fn newcomers_delay_the_others_by_one_launch_cost() {
        let mut model = StepModel::default();
        assert_eq!(model.most_joins(&size_model(), 4), usize::MAX, "no newcomer was measured");
        model.joined(2, 0.0036);
        assert_eq!(model.most_joins(&SizeModel::default(), 4), usize::MAX, "no step was measured");
        assert_eq!(model.most_joins(&size_model(), 4), 4, "8 ms are 4 newcomers of 1.8 ms");
        let mut quick = SizeModel::default();
        for items in [1, 4, 16].repeat(8) {
            quick.learn(items, Duration::from_micros(10 + items as u64));
        }
        let mut joins = StepModel::default();
        joins.joined(1, 5e-5);
        assert_eq!(joins.most_joins(&quick, 4), 20, "1 ms is 20 newcomers of 50 us, though a step launches in 10 us");
        (0..300).for_each(|_| model.joined(1, 0.1));
        assert_eq!(model.most_joins(&size_model(), 4), 1, "never none");
        for _ in 0..8 {
            (0..4).for_each(|_| model.stepped(1, 1, 0.009));
            model.ended();
        }
        assert_eq!(model.most_joins(&size_model(), 15), 4, "4 of 16 end in each step");
    }

    #[test]
    fn the_stay_of_an_item_is_learned_from_steps_and_ends() {
        let mut model = StepModel::default();
        model.joined(1, 0.002);
        (0..20).for_each(|_| model.stepped(4, 4, 0.012));
        (0..7).for_each(|_| model.ended());
        assert_eq!(model.stay_s(&size_model(), 4.0), None, "too few have ended");
        model.ended();
        let stay =
            |model: &StepModel, items| (model.stay_s(&size_model(), items).expect("it is known") * 1e3).round() as u32;
        assert_eq!((stay(&model, 1.0), stay(&model, 16.0)), (92, 272), "10 steps of 9 ms, and of 24 ms");
        for _ in 0..1000 {
            (0..10).for_each(|_| model.stepped(4, 16, 0.024));
            (0..4).for_each(|_| model.ended());
        }
        // 4 of the 16 in each step: 40 of 24 ms, twice as long as the sizes say, and 16 newcomers.
        assert!((980..1010).contains(&stay(&model, 16.0)), "{}", stay(&model, 16.0));
    }

    #[test]
    fn a_stay_is_the_mean_of_lately_once_enough_items_have_ended() {
        let mut model = StayModel::default();
        (0..7).for_each(|_| model.ended(Duration::from_secs(1)));
        assert_eq!((model.stay_s(), model.first_part_s()), (None, None));
        model.ended(Duration::from_secs(3));
        assert_eq!((model.stay_s(), model.first_part_s()), (Some(1.25), Some(1.25)));
        model.first_part(Duration::from_millis(500));
        assert_eq!((model.stay_s(), model.first_part_s()), (Some(1.25), Some(0.5)));
        (0..1000).for_each(|_| model.ended(Duration::from_secs(10)));
        assert!(model.stay_s().is_some_and(|stay| stay > 9.9));
    }
}
