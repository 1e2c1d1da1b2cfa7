//! Every metric once: name, kind, labels, help. The exporter and the reference page read this table.

/// Buckets of durations, in seconds: 100 microseconds to 60 seconds.
pub const SECONDS: &[f64] = &[
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
/// Finer buckets, a factor of 1.5 apart, for durations whose quantiles people read: the quantile that is computed from them
/// is wrong by a fifth at most.
pub const FINE_SECONDS: &[f64] = &[
    0.0001, 0.000_15, 0.0002, 0.0003, 0.0005, 0.0007, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02,
    0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 60.0,
];
/// Buckets of batch sizes, in items.
pub const ITEMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// What a metric measures with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number that only grows.
    Counter,
    /// Any number that only grows.
    Total,
    /// A whole number that goes up and down.
    Gauge,
    /// Any number that goes up and down.
    Level,
    /// A distribution over these buckets.
    Histogram(&'static [f64]),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its full name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its labels; the values come from closed sets.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
}

/// A row whose metric is a counter.
#[derive(Clone, Copy, Debug)]
pub struct Counter(pub Metric);

/// A row whose metric is a counter of any numbers, such as seconds.
#[derive(Clone, Copy, Debug)]
pub struct Total(pub Metric);

/// A row whose metric is a gauge of whole numbers.
#[derive(Clone, Copy, Debug)]
pub struct Gauge(pub Metric);

/// A row whose metric is a gauge of any numbers.
#[derive(Clone, Copy, Debug)]
pub struct Level(pub Metric);

/// A row whose metric is a histogram.
#[derive(Clone, Copy, Debug)]
pub struct Histogram(pub Metric);

macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $constant:ident = $name:literal, Kind::$kind:ident $(($buckets:expr))?,
       [$($label:literal),*];)+) => {
        $($(#[doc = $doc])+ pub const $constant: $kind = $kind(Metric {
            name: $name,
            kind: Kind::$kind $(($buckets))?,
            labels: &[$($label),*],
            help: concat!($($doc),+),
        });)+
        /// The whole table.
        pub const ALL: &[Metric] = &[$($constant.0,)+];
    };
}

metrics! {
    /// Requests that ended, by outcome.
    REQUESTS = "jitney_requests_total", Kind::Counter, ["deployment", "outcome"];
    /// Seconds from the arrival of a request at the engine to its end, by `result`: `ok` was answered, `refused` was refused or
    /// given up because too much was asked for, `failed` is all else. Refusals take microseconds: quantiles are those of `ok`.
    REQUEST_SECONDS = "jitney_request_duration_seconds", Kind::Histogram(FINE_SECONDS), ["deployment", "result"];
    /// Requests over HTTP, whatever they asked for, by protocol and by the class of the status: `2xx` to `5xx`.
    HTTP_REQUESTS = "jitney_http_requests_total", Kind::Counter, ["protocol", "class"];
    /// Seconds of items that were computed, by phase: `queue`, `decode`, `predict`, `encode`, `link` is the rest of the way to the
    /// worker and back. Of requests: `receive` until the items of a body are decoded, `render` the writing of the answer.
    PHASE_SECONDS = "jitney_phase_seconds_total", Kind::Total, ["deployment", "phase"];
    /// Seconds that an item waited until its batch ran.
    QUEUE_SECONDS = "jitney_queue_duration_seconds", Kind::Histogram(FINE_SECONDS), ["deployment"];
    /// Seconds that predict took for a batch.
    MODEL_SECONDS = "jitney_model_duration_seconds", Kind::Histogram(FINE_SECONDS), ["deployment"];
    /// Seconds for which a worker decoded the items of a batch.
    DECODE_SECONDS = "jitney_decode_duration_seconds", Kind::Histogram(SECONDS), ["deployment"];
    /// Seconds for which a worker encoded the answers of a batch.
    ENCODE_SECONDS = "jitney_encode_duration_seconds", Kind::Histogram(SECONDS), ["deployment"];
    /// Items in a batch when it was launched.
    BATCH_ITEMS = "jitney_batch_items", Kind::Histogram(ITEMS), ["deployment"];
    /// Cost units in batches when they were launched; without a cost every item counts 1.
    BATCH_COST = "jitney_batch_cost_total", Kind::Counter, ["deployment"];
    /// The same if each batch is padded to its largest item: what it exceeds `jitney_batch_cost_total` by is padding.
    PADDED_COST = "jitney_batch_padded_cost_total", Kind::Counter, ["deployment"];
    /// Batches launched, by the reason for which they were closed.
    BATCHES = "jitney_batches_total", Kind::Counter, ["deployment", "reason"];
    /// Items that were given to a second replica because the link of the first one was silent.
    HEDGED_ITEMS = "jitney_hedged_items_total", Kind::Counter, ["deployment"];
    /// Batches that were computed in more than one call of predict, and items that were computed again, by why: `worker_lost`
    /// counts items, `split` batches of which some items failed, `out_of_memory` batches too large for their device.
    RERUNS = "jitney_reruns_total", Kind::Counter, ["deployment", "why"];
    /// Answers in parts that ended, by outcome; `jitney_requests_total` counts them too.
    STREAMS = "jitney_streams_total", Kind::Counter, ["deployment", "outcome"];
    /// Seconds from the arrival of a request at the engine until the first part of its answer was handed to the connection.
    FIRST_PART_SECONDS = "jitney_first_part_seconds", Kind::Histogram(SECONDS), ["deployment"];
    /// Seconds between two parts of an answer, measured where they are handed to the connection.
    PART_GAP_SECONDS = "jitney_part_gap_seconds", Kind::Histogram(SECONDS), ["deployment"];
    /// Parts of answers that workers sent for clients that take them.
    PARTS = "jitney_parts_total", Kind::Counter, ["deployment"];
    /// Tokens that models counted in the answers that ended: `input` were read, `output` were written.
    TOKENS = "jitney_tokens_total", Kind::Counter, ["deployment", "kind"];
    /// Steps of a model that works in steps.
    STEPS = "jitney_steps_total", Kind::Counter, ["deployment"];
    /// Seconds that one step took.
    STEP_SECONDS = "jitney_step_seconds", Kind::Histogram(SECONDS), ["deployment"];
    /// Items that one step computed.
    STEP_ITEMS = "jitney_step_items", Kind::Histogram(ITEMS), ["deployment"];
    /// Items that joined a replica, of a model that works in steps or whose items run side by side.
    JOINS = "jitney_joins_total", Kind::Counter, ["deployment"];
    /// Items that the replicas of such a model hold.
    ACTIVE_ITEMS = "jitney_active_items", Kind::Gauge, ["deployment"];
    /// Items whose next part is not computed because their clients do not read.
    PAUSED_ITEMS = "jitney_paused_items", Kind::Gauge, ["deployment"];
    /// Seconds for which held batches waited although a replica was free.
    HOLD_SECONDS = "jitney_hold_duration_seconds", Kind::Histogram(SECONDS), ["deployment"];
    /// What launching a batch costs whatever it holds, in seconds, as learned.
    LAUNCH_COST = "jitney_launch_cost_seconds", Kind::Level, ["deployment"];
    /// What an item adds to its batch, in seconds, as learned.
    ITEM_COST = "jitney_item_cost_seconds", Kind::Level, ["deployment"];
    /// Arrivals per second, as learned.
    ARRIVAL_RATE = "jitney_arrivals_per_second", Kind::Level, ["deployment"];
    /// The share of answers that are soon followed by a request of their lane, as learned.
    RETURNS = "jitney_returns_ratio", Kind::Level, ["deployment"];
    /// Items that wait in lanes.
    QUEUED_ITEMS = "jitney_queued_items", Kind::Gauge, ["deployment"];
    /// Bytes that wait in lanes.
    QUEUED_BYTES = "jitney_queued_bytes", Kind::Gauge, ["deployment"];
    /// Bytes of large requests that do not count as queued: of items whose turn has not come, and of what an answer repeats.
    LATER_BYTES = "jitney_later_bytes", Kind::Gauge, ["deployment"];
    /// Seconds for which the oldest waiting item has waited; 0 if none waits.
    OLDEST_ITEM = "jitney_oldest_item_seconds", Kind::Level, ["deployment"];
    /// Seconds that an item which arrives now would wait, as predicted; 0 while too little is known.
    PREDICTED_WAIT = "jitney_predicted_wait_seconds", Kind::Level, ["deployment"];
    /// Most items of a batch: the option `max_batch_size`.
    MAX_BATCH_ITEMS = "jitney_max_batch_items", Kind::Gauge, ["deployment"];
    /// Most items that may wait: the option `max_queued_items`.
    MAX_QUEUED_ITEMS = "jitney_max_queued_items", Kind::Gauge, ["deployment"];
    /// Most bytes that may wait: the option `max_queued_bytes`.
    MAX_QUEUED_BYTES = "jitney_max_queued_bytes", Kind::Gauge, ["deployment"];
    /// Lanes that hold at least one item.
    LANES = "jitney_lanes", Kind::Gauge, ["deployment"];
    /// Items that are with a worker.
    RUNNING_ITEMS = "jitney_running_items", Kind::Gauge, ["deployment"];
    /// Replicas that there should be: the option `replicas`, or chosen by load between `min_replicas` and `max_replicas`.
    WANTED_REPLICAS = "jitney_wanted_replicas", Kind::Gauge, ["deployment"];
    /// Replicas that are loaded and answer.
    READY_REPLICAS = "jitney_ready_replicas", Kind::Gauge, ["deployment"];
    /// Replicas by state; the sum is all that there are. `waiting` for a place or for others, `starting` until its worker
    /// connects, `loading` the model and warming up, `ready`, `leaving` when its batches are answered, `away` if its machine cannot
    /// be reached, `dying`, `backing_off` before its next start, `awaiting_change` of files, `given_up`.
    REPLICAS = "jitney_replicas", Kind::Gauge, ["deployment", "state"];
    /// How fast a replica computes batches, as learned: 1 is the median replica of its deployment, 0.1 takes ten times as long.
    REPLICA_SPEED = "jitney_replica_speed", Kind::Level, ["deployment", "replica"];
    /// Round-trip time of the link to a replica on another machine, without payload: the shortest of the last 16 batches.
    LINK_ROUND_TRIP = "jitney_link_round_trip_seconds", Kind::Level, ["deployment", "replica"];
    /// Bytes per second of the link to a replica on another machine, as measured with batches of 1 MB or more; 0 while there was
    /// none.
    LINK_BANDWIDTH = "jitney_link_bytes_per_second", Kind::Level, ["deployment", "replica"];
    /// Workers that were lost or replaced: `died`, `hung`, `silent`, `load_failed`, `load_timeout`, `broken`, `renewed` by a
    /// reload, `away` when its machine cannot be reached, `left` when its machine goes away.
    WORKERS_LOST = "jitney_workers_lost_total", Kind::Counter, ["deployment", "cause"];
    /// Workers that were started for a replica; the first one is 1.
    WORKER_STARTS = "jitney_worker_starts_total", Kind::Counter, ["deployment", "replica"];
    /// Seconds for which a replica was in predict.
    WORKER_BUSY = "jitney_worker_busy_seconds_total", Kind::Total, ["deployment", "replica"];
    /// Batches that a replica computed; of a model that works in steps, its steps.
    WORKER_BATCHES = "jitney_worker_batches_total", Kind::Counter, ["deployment", "replica"];
    /// Items that ended at a replica.
    WORKER_ITEMS = "jitney_worker_items_total", Kind::Counter, ["deployment", "replica"];
    /// Seconds since a replica that has a batch last finished one, made a step or sent a part of an answer; 0 if it has no batch.
    WORKER_WITHOUT_PROGRESS = "jitney_worker_without_progress_seconds", Kind::Level, ["deployment", "replica"];
    /// Seconds of CPU time that the workers of a replica took; only of workers on the front's machine.
    WORKER_CPU = "jitney_worker_cpu_seconds_total", Kind::Total, ["deployment", "replica"];
    /// Bytes of memory of a replica's worker, shared pages included; only of workers on the front's machine.
    WORKER_MEMORY = "jitney_worker_resident_bytes", Kind::Gauge, ["deployment", "replica"];
    /// Threads of a replica's worker; only of workers on the front's machine.
    WORKER_THREADS = "jitney_worker_threads", Kind::Gauge, ["deployment", "replica"];
    /// When a replica's worker was started, in seconds since 1970; only of workers on the front's machine.
    WORKER_STARTED = "jitney_worker_start_time_seconds", Kind::Level, ["deployment", "replica"];
    /// Seconds from the time when a replica's worker was wanted until it was ready.
    WORKER_LOAD = "jitney_worker_load_seconds", Kind::Level, ["deployment", "replica"];
    /// Share of the time in which a GPU ran anything. One kernel that uses a small part of it counts as much as a full one. GPUs
    /// are shown if a worker has one, and NVIDIA's library (NVML) is there.
    GPU_UTILIZATION = "jitney_gpu_utilization_ratio", Kind::Level, ["gpu", "uuid"];
    /// Bytes of a GPU's memory that are in use, by any program.
    GPU_MEMORY_USED = "jitney_gpu_memory_used_bytes", Kind::Level, ["gpu", "uuid"];
    /// Bytes of a GPU's memory.
    GPU_MEMORY_TOTAL = "jitney_gpu_memory_total_bytes", Kind::Level, ["gpu", "uuid"];
    /// Watts that a GPU draws.
    GPU_POWER = "jitney_gpu_power_watts", Kind::Level, ["gpu", "uuid"];
    /// Joules that a GPU has taken since its driver was loaded.
    GPU_ENERGY = "jitney_gpu_energy_joules_total", Kind::Total, ["gpu", "uuid"];
    /// Degrees Celsius of a GPU.
    GPU_TEMPERATURE = "jitney_gpu_temperature_celsius", Kind::Level, ["gpu", "uuid"];
    /// Bytes of GPU memory of a replica's worker, as NVML says it; absent if that knows no process of this number, as in containers.
    WORKER_GPU_MEMORY = "jitney_worker_gpu_memory_bytes", Kind::Gauge, ["deployment", "replica"];
    /// Open client connections.
    CONNECTIONS = "jitney_connections", Kind::Gauge, [];
    /// Bytes held by request bodies that are still being received.
    RECEIVING_BYTES = "jitney_receiving_bytes", Kind::Gauge, [];
    /// Bytes held by answers that clients have not taken yet.
    UNTAKEN_BYTES = "jitney_untaken_bytes", Kind::Gauge, [];
    /// Seconds by which the front woke too late from a sleep of 100 ms: it is busy, or its machine is.
    FRONT_LAG = "jitney_front_lag_seconds", Kind::Histogram(SECONDS), [];
    /// 1, with the version of the server.
    INFO = "jitney_info", Kind::Gauge, ["version"];
    /// 1, with what a deployment is: its batch policy, its task (empty if it has none) and its version.
    DEPLOYMENT_INFO = "jitney_deployment_info", Kind::Gauge, ["deployment", "policy", "task", "version"];
    /// Seconds of CPU time that the front took.
    PROCESS_CPU = "process_cpu_seconds_total", Kind::Total, [];
    /// Bytes of memory of the front.
    PROCESS_MEMORY = "process_resident_memory_bytes", Kind::Gauge, [];
    /// Threads of the front.
    PROCESS_THREADS = "process_threads", Kind::Gauge, [];
    /// Files and sockets that the front has open.
    PROCESS_OPEN_FDS = "process_open_fds", Kind::Gauge, [];
    /// Files and sockets that the front may have open.
    PROCESS_MAX_FDS = "process_max_fds", Kind::Gauge, [];
    /// When the front was started, in seconds since 1970.
    PROCESS_STARTED = "process_start_time_seconds", Kind::Level, [];
    /// Available memory of the machine of the front, or of its container, in bytes; files that are cached count as available.
    AVAILABLE_MEMORY = "jitney_available_memory_bytes", Kind::Gauge, [];
    /// Traces that were kept to be sent, by how that ended: the collector took them, there was no room, or it did not take them.
    TRACES = "jitney_traces_total", Kind::Counter, ["end"];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for metric in ALL {
            // What every process has is called as everywhere.
            assert!(metric.name.starts_with("jitney_") || metric.name.starts_with("process_"), "{}", metric.name);
            let only_grows = matches!(metric.kind, Kind::Counter | Kind::Total);
            assert_eq!(only_grows, metric.name.ends_with("_total"), "{}", metric.name);
            assert!(!metric.help.is_empty());
        }
    }
}
