//! How many of the waiting items one launch takes.

use crate::learn::size_model::SizeModel;
use crate::policy::batch_policy::View;
use crate::queue::lanes::LaneId;

/// The size is chosen for a load that is this many times the measured one: too small a batch costs more than too large a one.
const CAUTION: f64 = 1.15;

/// Durations that scatter by this share, as on any machine, are not a reason to doubt which size is best.
const USUAL_SCATTER: f64 = 0.1;
/// The largest share by which a smaller size must be better.
const MOST_DOUBT: f64 = 0.3;
/// What a launch costs the front, in seconds, apart from the time in which it occupies a replica: it is the same whatever the
/// model does, and without it launches of a model that costs nothing would look free.
const FRONT_S: f64 = 2e-4;

/// The most of `waiting` in a lane that one launch takes: free replicas share what waits by their speed, but one each is left for
/// the other lanes.
pub fn share(view: &View, waiting: usize) -> usize {
    let others = view.lanes.len().saturating_sub(1);
    let replicas = (view.idle_worth - others as f64).max(1.0);
    // What a division leaves behind the comma must not make a batch larger by one.
    ((waiting as f64 / replicas - 1e-9).ceil() as usize).min(view.lanes.limits().max_items)
}

/// How many of `waiting` to take: the size that makes the mean wait shortest. Free replicas share what waits; beyond that,
/// all at once is best unless launches are almost free, when those behind wait for less if the batch is smaller.
pub fn take(view: &View, size_model: &SizeModel, waiting: usize, rate: f64) -> usize {
    best_size(view, size_model, waiting, rate, FRONT_S)
}

/// Whether a full batch of `full` items is as good as any smaller one when it is sent to a busy replica. The replica does not
/// wait for the front then, so such a launch costs nothing but the time of the batch.
pub fn is_full_best(view: &View, full: usize, rate: f64) -> bool {
    best_size(view, view.size_model, full, rate, 0.0) == full
}

/// `most_s` is what a launch of all costs the front, in seconds.
fn best_size(view: &View, size_model: &SizeModel, waiting: usize, rate: f64, most_s: f64) -> usize {
    let most = share(view, waiting);
    if !size_model.has_line() || most <= 1 {
        return most;
    }
    let behind = behind(view, size_model, waiting, most, rate);
    // On a shared machine sizes are measured at different times, and what differs may be the load of the machine. Where items
    // differ in cost, durations scatter for that reason too.
    let has_costs = view.group_models.cost_model().has_costs();
    let doubt = if has_costs { 0.0 } else { (size_model.scatter() - USUAL_SCATTER).clamp(0.0, MOST_DOUBT) };
    let front_s = |items| if items == most { most_s } else { FRONT_S };
    size_model.best_size(most, doubt, |items, seconds| {
        (view.factor * seconds + front_s(items)) * (behind / items as f64 + 1.0)
    })
}

/// How many items are delayed by each second that a batch takes longer: those that wait, and those that come until none waits.
pub fn behind(view: &View, size_model: &SizeModel, waiting: usize, most: usize, rate: f64) -> f64 {
    let (limit, replicas) = (view.lanes.limits().max_items, view.power);
    let load = (CAUTION * rate / (replicas * size_model.best_rate(limit))).min(0.99);
    (waiting as f64 + rate * size_model.seconds(most) / replicas) / (replicas * (1.0 - load))
}

/// Whether a batch cut to `size` for the sake of its head would not help it, or would not keep up with arrivals.
pub fn is_lost(view: &View, lane: LaneId, size: usize, rate: f64) -> bool {
    let (cost_model, slack) = (view.cost_model_of(lane), view.slack_s(lane));
    let load = view.loads(lane).take(size).last().unwrap_or_default();
    view.factor * cost_model.upper(load) > slack || view.power * size as f64 / cost_model.seconds(load) < rate
}
