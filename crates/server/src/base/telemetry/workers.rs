//! The replicas as the supervisor has them, for pages that ask, and the metrics that are made of them when somebody looks.

use crate::base::telemetry::Telemetry;
use crate::base::telemetry::available_memory;
use crate::base::telemetry::gpus::Gpus;
use crate::base::telemetry::process_stats::{self, ProcessStats};
use jitney_core::tables::metrics;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The states of a replica, as `jitney_replicas` has them.
pub const STATES: [&str; 10] = [
    "waiting",
    "starting",
    "loading",
    "ready",
    "leaving",
    "away",
    "dying",
    "backing_off",
    "awaiting_change",
    "given_up",
];

/// Longest wait for the supervisor. It answers in microseconds.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// Questions for the replicas, each with where its answer goes.
pub(crate) type Questions = mpsc::UnboundedReceiver<oneshot::Sender<Vec<WorkerSeen>>>;

/// One replica.
#[derive(Clone, Debug)]
pub struct WorkerSeen {
    /// Its deployment.
    pub deployment: String,
    /// Its number among the replicas of the deployment.
    pub replica: u32,
    /// One of `STATES`.
    pub state: &'static str,
    /// Fewer replicas are needed: it is not replaced when it has ended.
    pub is_surplus: bool,
    /// The process id of its worker, if that runs on this machine.
    pub pid: Option<u32>,
    /// The machine of its worker; `None` is this one.
    pub host: Option<Arc<str>>,
    /// The device that it was given.
    pub device: Option<String>,
    /// Workers that were started for it.
    pub starts: u64,
    /// How long its worker took until it was ready.
    pub load: Option<Duration>,
    /// Workers of it that were lost.
    pub losses: u64,
    /// Why its last worker was lost, in words for people who may read the log.
    pub failure: Option<String>,
}

/// Whom to ask for the replicas, and what was counted of them before.
#[derive(Debug, Default)]
pub struct Workers {
    /// The supervisor, once it runs.
    supervisor: OnceLock<mpsc::UnboundedSender<oneshot::Sender<Vec<WorkerSeen>>>>,
    /// The process of each replica at the last look, and the CPU time that it had taken.
    cpu: Mutex<FxHashMap<(String, u32), (u32, f64)>>,
    gpus: Gpus,
}

impl Workers {
    /// The questions, for the supervisor to answer; `None` if another one does already.
    pub(crate) fn answer(&self) -> Option<Questions> {
        let (sender, questions) = mpsc::unbounded_channel();
        self.supervisor.set(sender).ok().map(|()| questions)
    }

    /// Asks for the replicas; `None` while no supervisor runs.
    pub fn ask(&self) -> Option<oneshot::Receiver<Vec<WorkerSeen>>> {
        let (reply, answer) = oneshot::channel();
        self.supervisor.get()?.send(reply).ok()?;
        Some(answer)
    }

    /// The replicas; none if the supervisor does not answer soon.
    pub async fn seen(&self) -> Vec<WorkerSeen> {
        let Some(answer) = self.ask() else { return Vec::new() };
        tokio::time::timeout(ANSWERS_WITHIN, answer).await.ok().and_then(Result::ok).unwrap_or_default()
    }
}

/// All metrics as text, with those of these replicas and of the front's own process. Reads files of the kernel and asks GPUs,
/// so it may block for a while: some 20 microseconds for each worker, and milliseconds for each GPU.
pub fn text(telemetry: &Telemetry, asked: &Workers, workers: &[WorkerSeen]) -> String {
    // One at a time: a text that is written while another one sets its metrics would lack some.
    let mut cpu = asked.cpu.lock().unwrap_or_else(PoisonError::into_inner);
    show_replicas(telemetry, workers);
    show_processes(telemetry, workers, &mut cpu);
    show_gpus(telemetry, &asked.gpus, workers);
    show_front(telemetry);
    telemetry.text()
}

fn show_replicas(telemetry: &Telemetry, workers: &[WorkerSeen]) {
    let mut replicas: FxHashMap<&str, ([i64; STATES.len()], i64)> = FxHashMap::default();
    for worker in workers {
        let (states, wanted) = replicas.entry(&worker.deployment).or_default();
        STATES.iter().zip(states).filter(|(state, _)| **state == worker.state).for_each(|(_, count)| *count += 1);
        *wanted += i64::from(!worker.is_surplus);
    }
    for (deployment, (states, wanted)) in replicas {
        for (state, count) in STATES.iter().zip(states) {
            telemetry.gauge(metrics::REPLICAS, &[deployment, state]).set(count);
        }
        telemetry.gauge(metrics::WANTED_REPLICAS, &[deployment]).set(wanted);
    }
    let loads = telemetry.levels(metrics::WORKER_LOAD);
    loads.reset();
    for worker in workers {
        let replica = worker.replica.to_string();
        let labels = [worker.deployment.as_str(), &replica];
        let starts = telemetry.counter(metrics::WORKER_STARTS, &labels);
        starts.inc_by(worker.starts.saturating_sub(starts.get()));
        worker.load.iter().for_each(|load| loads.with_label_values(&labels).set(load.as_secs_f64()));
    }
}

fn show_processes(telemetry: &Telemetry, workers: &[WorkerSeen], cpu: &mut FxHashMap<(String, u32), (u32, f64)>) {
    let (memory, threads) = (telemetry.gauges(metrics::WORKER_MEMORY), telemetry.gauges(metrics::WORKER_THREADS));
    let started = telemetry.levels(metrics::WORKER_STARTED);
    memory.reset();
    threads.reset();
    started.reset();
    for worker in workers {
        let Some((pid, stats)) = worker.pid.and_then(|pid| Some((pid, ProcessStats::of(pid)?))) else { continue };
        let replica = worker.replica.to_string();
        let labels = [worker.deployment.as_str(), &replica];
        memory.with_label_values(&labels).set(stats.resident_bytes as i64);
        threads.with_label_values(&labels).set(stats.threads as i64);
        started.with_label_values(&labels).set(stats.started_s);
        // The counter goes on when another process follows.
        let last = cpu.insert((worker.deployment.clone(), worker.replica), (pid, stats.cpu_s));
        let before = last.filter(|(last, _)| *last == pid).map_or(0.0, |(_, cpu_s)| cpu_s);
        telemetry.total(metrics::WORKER_CPU, &labels).inc_by((stats.cpu_s - before).max(0.0));
    }
}

/// Shows the GPUs if a worker is on one.
fn show_gpus(telemetry: &Telemetry, gpus: &Gpus, workers: &[WorkerSeen]) {
    let is_on_gpu = |worker: &WorkerSeen| worker.device.as_ref().is_some_and(|device| device.starts_with("cuda"));
    if workers.iter().any(is_on_gpu) {
        let replicas: Vec<String> = workers.iter().map(|worker| worker.replica.to_string()).collect();
        let named = workers.iter().zip(&replicas);
        let processes: Vec<_> =
            named.filter_map(|(worker, replica)| Some((worker.pid?, [&*worker.deployment, replica]))).collect();
        gpus.show(telemetry, &processes);
    }
}

fn show_front(telemetry: &Telemetry) {
    if let Some(stats) = ProcessStats::of(std::process::id()) {
        let cpu = telemetry.total(metrics::PROCESS_CPU, &[]);
        cpu.inc_by((stats.cpu_s - cpu.get()).max(0.0));
        telemetry.gauge(metrics::PROCESS_MEMORY, &[]).set(stats.resident_bytes as i64);
        telemetry.gauge(metrics::PROCESS_THREADS, &[]).set(stats.threads as i64);
        telemetry.level(metrics::PROCESS_STARTED, &[]).set(stats.started_s);
    }
    for (gauge, value) in [
        (metrics::PROCESS_OPEN_FDS, process_stats::open_fds()),
        (metrics::PROCESS_MAX_FDS, process_stats::max_fds()),
        (metrics::AVAILABLE_MEMORY, available_memory::available_bytes()),
    ] {
        value.into_iter().for_each(|value| telemetry.gauge(gauge, &[]).set(i64::try_from(value).unwrap_or(i64::MAX)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(replica: u32, state: &'static str, pid: Option<u32>) -> WorkerSeen {
        let deployment = "a".to_owned();
        let (host, device, load, failure) = (None, None, Some(Duration::from_secs(2)), None);
        let (starts, losses) = (3, 2);
        WorkerSeen { deployment, replica, state, is_surplus: false, pid, host, device, starts, load, losses, failure }
    }

    #[test]
    fn replicas_are_counted_by_state_and_those_that_are_gone_have_no_process() {
        let (telemetry, asked) = (Telemetry::new(), Workers::default());
        let own = std::process::id();
        let seen = text(&telemetry, &asked, &[worker(0, "ready", Some(own)), worker(1, "loading", None)]);
        for line in [
            r#"jitney_replicas{deployment="a",state="ready"} 1"#,
            r#"jitney_replicas{deployment="a",state="loading"} 1"#,
            r#"jitney_replicas{deployment="a",state="dying"} 0"#,
            r#"jitney_wanted_replicas{deployment="a"} 2"#,
            r#"jitney_worker_starts_total{deployment="a",replica="1"} 3"#,
            r#"jitney_worker_load_seconds{deployment="a",replica="0"} 2"#,
        ] {
            assert!(seen.lines().any(|found| found == line), "{line}\n{seen}");
        }
        if cfg!(target_os = "linux") {
            assert!(seen.contains(r#"jitney_worker_resident_bytes{deployment="a",replica="0"} "#), "{seen}");
            assert!(seen.contains("process_open_fds ") && seen.contains("process_cpu_seconds_total "), "{seen}");
        }
        let later = text(&telemetry, &asked, &[worker(0, "backing_off", None)]);
        assert!(!later.contains("jitney_worker_resident_bytes{"), "{later}");
        assert!(later.contains(r#"jitney_worker_starts_total{deployment="a",replica="0"} 3"#), "not counted twice");
    }
}
