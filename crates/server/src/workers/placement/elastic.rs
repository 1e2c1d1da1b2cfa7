//! A deployment whose number of replicas follows its load.

use crate::workers::placement::plan::Assignment;
use jitney_core::replicas::scaling::rule::Scaling;
use jitney_core::replicas::scaling::start_time::StartTime;
use jitney_core::time::Time;

/// What the supervisor knows of one.
#[derive(Debug)]
pub(crate) struct Elastic {
    pub(crate) scaling: Scaling,
    pub(crate) start_time: StartTime,
    /// What further replicas are, apart from their number and their device.
    pub(crate) pattern: Assignment,
    pub(crate) devices: Vec<String>,
    /// The target that its workers import.
    pub(crate) target: usize,
    pub(crate) fewest: u32,
    /// When the number of replicas was decided last: it had none because none was needed, or the first one since then was not up.
    pub(crate) slept: bool,
    /// When the number of replicas was decided last.
    pub(crate) decided: Time,
}

impl Elastic {
    /// Whether it sleeps, if so many replicas are up. One that is used and whose replicas were all lost does not.
    pub(crate) fn sleeps(&self, up: usize) -> bool {
        up == 0 && (self.slept || self.scaling.wanted() == 0)
    }
}
