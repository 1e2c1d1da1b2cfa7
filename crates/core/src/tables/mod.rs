//! Tables that code and documentation share: outcomes and metrics.

pub mod metrics;
pub mod outcome;
