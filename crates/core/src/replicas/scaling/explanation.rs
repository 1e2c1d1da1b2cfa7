//! Why a deployment has as many replicas as it has, in numbers.

use serde::Serialize;
use std::fmt;

/// The terms of one decision, as `/config` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reasons {
    /// Replicas that there should be.
    pub wanted: u32,
    /// Items that arrive per second, refused ones included.
    pub arrivals_per_s: f64,
    /// What the rate is expected to grow by until a new replica is ready, per second.
    pub growth_per_s: f64,
    /// Items per second of one replica; 0 while too few batches were measured.
    pub items_per_s_of_a_replica: f64,
    /// Replicas that compute all of it if they are never without work.
    pub load: f64,
    /// Replicas in addition, so that few items wait for longer than the latency target leaves room for.
    pub spare: f64,
    /// Replicas in addition for the items that wait already.
    pub backlog: f64,
    /// How much more arrivals scatter than those of independent clients, which have 1.
    pub burst_index: f64,
    /// Learned seconds from asking for a replica until it is ready.
    pub start_s: f64,
    /// Replicas stay for this long after they were needed, in seconds.
    pub stays_s: f64,
    /// Replicas needed now; more are wanted while they were needed a moment ago.
    pub needed: u32,
    /// A request waits, and there should have been no replica until now.
    pub wakes: bool,
    /// A bound changed the number: `min_replicas` or `max_replicas`.
    pub bound: Option<&'static str>,
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reasons { arrivals_per_s, growth_per_s, items_per_s_of_a_replica: each, load, spare, backlog, .. } = *self;
        if self.wakes {
            f.write_str(if each > 0.0 { "a request waits; " } else { "a request waits" })?;
        }
        if self.needed == 0 {
            f.write_str("no items arrive")?;
        } else if each > 0.0 {
            write!(f, "{:.0} items/s ", arrivals_per_s + growth_per_s)?;
            if growth_per_s >= 0.5 {
                write!(f, "({growth_per_s:.0} of them expected) ")?;
            }
            write!(f, "need {load:.1} replicas at {each:.0} items/s each, spare {spare:.1}")?;
        } else if !self.wakes {
            write!(f, "{arrivals_per_s:.0} items/s arrive, and no batch has been measured yet")?;
        }
        if backlog >= 0.05 {
            write!(f, ", waiting items {backlog:.1}")?;
        }
        if self.needed < self.wanted && self.bound.is_none() {
            write!(f, "; {} were needed in the last {:.0} s", self.wanted, self.stays_s)?;
        }
        self.bound.map_or(Ok(()), |bound| write!(f, "; {bound} = {}", self.wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_that_counts_is_in_the_text() {
        let reasons = Reasons {
            wanted: 5,
            needed: 5,
            arrivals_per_s: 412.0,
            items_per_s_of_a_replica: 106.0,
            load: 3.88,
            spare: 0.8,
            ..Reasons::default()
        };
        assert_eq!(reasons.to_string(), "412 items/s need 3.9 replicas at 106 items/s each, spare 0.8");
        let grows = Reasons { growth_per_s: 100.0, backlog: 1.25, bound: Some("max_replicas"), ..reasons };
        let text = "512 items/s (100 of them expected) need 3.9 replicas at 106 items/s each, spare 0.8, \
            waiting items 1.2; max_replicas = 5";
        assert_eq!(grows.to_string(), text);
        let asleep = Reasons { wanted: 1, needed: 1, wakes: true, ..Reasons::default() };
        assert_eq!(asleep.to_string(), "a request waits");
        assert!(Reasons { wakes: true, ..reasons }.to_string().starts_with("a request waits; 412 items/s need"));
        assert_eq!(Reasons::default().to_string(), "no items arrive");
        let later = Reasons { needed: 2, stays_s: 20.0, ..reasons };
        assert!(later.to_string().ends_with("; 5 were needed in the last 20 s"), "{later}");
    }
}
