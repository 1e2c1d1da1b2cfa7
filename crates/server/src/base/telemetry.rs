//! The metrics table of `core`, made recordable. The type of a row says which kind of metric it is; labels are resolved once.

pub(crate) mod available_memory;
pub(crate) mod exemplars;
mod gpus;
pub(crate) mod http_requests;
mod of_models;
pub(crate) mod openmetrics;
pub mod process_stats;
pub mod workers;

use crate::base::ledger::Account;
use crate::base::telemetry::exemplars::Exemplars;
use crate::base::telemetry::of_models::OfModels;
use jitney_core::tables::metrics;
use jitney_core::tables::metrics::{Kind, Metric};
use jitney_core::tables::outcome::{Ending, Outcome};
use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Every metric of the table, registered.
#[derive(Debug)]
pub struct Telemetry {
    registry: Registry,
    counters: FxHashMap<&'static str, IntCounterVec>,
    totals: FxHashMap<&'static str, CounterVec>,
    gauges: FxHashMap<&'static str, IntGaugeVec>,
    levels: FxHashMap<&'static str, GaugeVec>,
    histograms: FxHashMap<&'static str, HistogramVec>,
    /// Gauges that show what the ledger says when somebody looks.
    accounts: Mutex<Vec<(IntGauge, Account)>>,
    of_models: Mutex<OfModels>,
    exemplars: Arc<Exemplars>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry::new()
    }
}

impl Telemetry {
    /// Registers the whole table.
    pub fn new() -> Telemetry {
        let mut telemetry = Telemetry {
            registry: Registry::new(),
            counters: FxHashMap::default(),
            totals: FxHashMap::default(),
            gauges: FxHashMap::default(),
            levels: FxHashMap::default(),
            histograms: FxHashMap::default(),
            accounts: Mutex::default(),
            of_models: Mutex::default(),
            exemplars: Arc::default(),
        };
        for metric in metrics::ALL {
            telemetry.register(metric);
        }
        telemetry
    }

    fn register(&mut self, metric: &Metric) {
        let opts = Opts::new(metric.name, metric.help.trim());
        let collector: Box<dyn Collector> = match metric.kind {
            Kind::Counter => {
                let vec = IntCounterVec::new(opts, metric.labels).expect("the table is valid");
                self.counters.insert(metric.name, vec.clone());
                Box::new(vec)
            }
            Kind::Total => {
                let vec = CounterVec::new(opts, metric.labels).expect("the table is valid");
                self.totals.insert(metric.name, vec.clone());
                Box::new(vec)
            }
            Kind::Gauge => {
                let vec = IntGaugeVec::new(opts, metric.labels).expect("the table is valid");
                self.gauges.insert(metric.name, vec.clone());
                Box::new(vec)
            }
            Kind::Level => {
                let vec = GaugeVec::new(opts, metric.labels).expect("the table is valid");
                self.levels.insert(metric.name, vec.clone());
                Box::new(vec)
            }
            Kind::Histogram(buckets) => {
                let opts = HistogramOpts::from(opts).buckets(buckets.to_vec());
                let vec = HistogramVec::new(opts, metric.labels).expect("the table is valid");
                self.histograms.insert(metric.name, vec.clone());
                Box::new(vec)
            }
        };
        self.registry.register(collector).expect("names in the table are unique");
    }

    /// The counter of this row with these label values.
    pub fn counter(&self, metric: metrics::Counter, labels: &[&str]) -> IntCounter {
        self.counters[metric.0.name].with_label_values(labels)
    }

    /// The counter of this row with these label values, for any numbers.
    pub fn total(&self, metric: metrics::Total, labels: &[&str]) -> Counter {
        self.totals[metric.0.name].with_label_values(labels)
    }

    /// The gauge of this row with these label values.
    pub fn gauge(&self, metric: metrics::Gauge, labels: &[&str]) -> IntGauge {
        self.gauges[metric.0.name].with_label_values(labels)
    }

    /// The counters of this row, where label values come and go.
    pub fn counters(&self, metric: metrics::Counter) -> IntCounterVec {
        self.counters[metric.0.name].clone()
    }

    /// The counters of this row for any numbers, where label values come and go.
    pub fn totals(&self, metric: metrics::Total) -> CounterVec {
        self.totals[metric.0.name].clone()
    }

    /// The gauges of this row, where label values come and go.
    pub fn gauges(&self, metric: metrics::Gauge) -> IntGaugeVec {
        self.gauges[metric.0.name].clone()
    }

    /// The level of this row with these label values.
    pub fn level(&self, metric: metrics::Level, labels: &[&str]) -> Gauge {
        self.levels[metric.0.name].with_label_values(labels)
    }

    /// The levels of this row, where label values come and go.
    pub fn levels(&self, metric: metrics::Level) -> GaugeVec {
        self.levels[metric.0.name].clone()
    }

    /// The histogram of this row with these label values.
    pub fn histogram(&self, metric: metrics::Histogram, labels: &[&str]) -> prometheus::Histogram {
        self.histograms[metric.0.name].with_label_values(labels)
    }

    /// One histogram of this row for each way in which a request can end, in the order of `Ending::ALL`.
    pub fn endings(&self, metric: metrics::Histogram, deployment: &str) -> [prometheus::Histogram; 3] {
        Ending::ALL.map(|ending| self.histogram(metric, &[deployment, ending.label()]))
    }

    /// One counter of this row for each outcome, in the order of `Outcome::ALL`.
    pub fn outcomes(&self, metric: metrics::Counter, deployment: &str) -> Vec<IntCounter> {
        Outcome::ALL.iter().map(|o| self.counter(metric, &[deployment, o.reason()])).collect()
    }

    /// Shows an account of the ledger as the gauge of this row with these label values.
    pub fn show_account(&self, metric: metrics::Gauge, labels: &[&str], account: &Account) {
        let shown = (self.gauge(metric, labels), account.clone());
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner).push(shown);
    }

    /// Adds what a model counted itself (JSON). An error says why something of it is left out; it is said once.
    pub fn measured(&self, deployment: &str, body: &[u8]) -> Result<(), String> {
        self.of_models.lock().unwrap_or_else(PoisonError::into_inner).add(deployment, body)
    }

    /// The traced requests that stand for others.
    pub(crate) fn exemplars(&self) -> &Arc<Exemplars> {
        &self.exemplars
    }

    /// Everything in the Prometheus text format.
    pub fn text(&self) -> String {
        for (gauge, account) in &*self.accounts.lock().unwrap_or_else(PoisonError::into_inner) {
            gauge.set(i64::try_from(account.amount()).unwrap_or(i64::MAX));
        }
        let mut families = self.registry.gather();
        families.extend(self.of_models.lock().unwrap_or_else(PoisonError::into_inner).gather());
        TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }
}
