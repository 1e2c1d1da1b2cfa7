//! The shape and limits of configuration. Defaults live in Python (`jitney.config`), once.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The options of one deployment, all of them: a missing or an unknown key is an error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "as many options are a yes or a no")]
pub struct DeploymentOptions {
    /// Most items in one batch.
    pub max_batch_size: u32,
    /// Most cost units in one batch; an item above it is computed alone, and refused by a model that works in steps.
    pub max_batch_cost: Option<u64>,
    /// When to launch: `auto`, `eager` or `fixed`.
    pub policy: String,
    /// How long `fixed` may hold a lane open, counted from the arrival of its head.
    pub max_batch_delay_ms: f64,
    /// As many answers as possible within this, from arrival; the late ones are refused early.
    pub latency_target_ms: Option<f64>,
    /// Loaded copies of the model.
    pub replicas: u32,
    /// Fewest copies, if their number follows the load; `replicas` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<u32>,
    /// Most copies, if their number follows the load; `replicas` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<u32>,
    /// A copy stays for this long after it was needed; learned if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down_after_s: Option<f64>,
    /// Copies that must be ready for the deployment to be ready after the first start.
    pub min_ready_replicas: u32,
    /// Devices given to the replicas, round robin.
    pub devices: Vec<String>,
    /// Where replicas run: `local`, `joined`, `ray` or `any`; default: `ray` with a Ray cluster, `any` where agents may join, else
    /// `local`.
    #[serde(default)]
    pub backend: Option<String>,
    /// Cores that a place at an agent must have.
    pub num_cpus: f64,
    /// Devices that a place at an agent must have.
    pub num_gpus: f64,
    /// What the machine of an agent must have of other things, as in `tpu=4`.
    pub resources: Vec<String>,
    /// Labels that a node of the Ray cluster must have, as in `zone=a`.
    pub node_labels: Vec<String>,
    /// The runtime environment of workers in the Ray cluster: a JSON object.
    #[serde(default)]
    pub runtime_env: Option<String>,
    /// Whether replicas are on as many machines as possible.
    pub spread: bool,
    /// Further names by which clients of the `OpenAI` API ask for it.
    pub openai_names: Vec<String>,
    /// Most items that wait.
    pub max_queued_items: u64,
    /// Most bytes that wait.
    pub max_queued_bytes: u64,
    /// How long a request may be made to wait.
    pub max_wait_s: Option<f64>,
    /// A request's deadline when it names none.
    pub request_timeout_s: f64,
    /// The deadline of a request that names none and whose answer comes in parts, from the first part on.
    pub stream_timeout_s: f64,
    /// A batch that runs longer is a hang.
    pub batch_timeout_s: f64,
    /// Loading and warming up may take this long.
    pub load_timeout_s: f64,
    /// How often the model is asked whether it still works.
    pub check_interval_s: f64,
    /// Headers of requests that the model may read, in lower case.
    pub context_headers: Vec<String>,
    /// The head start of a priority class over the next.
    pub priority_boost_s: f64,
    /// Whether `predict` may run again on the same item.
    pub retry: bool,
    /// Whether `predict` takes a batch; otherwise one item at a time.
    pub batched: bool,
    /// Whether the items of a replica run side by side, a coroutine each: `predict` is `async def` and takes one item. Items join
    /// and leave a replica at any time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub concurrent: bool,
    /// Whether the model works in steps: items join and leave a replica between two of them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub steps: bool,
    /// Most pixels of an image that comes in.
    pub max_pixels: u64,
    /// Most bytes that the model may answer to one item.
    pub max_answer_bytes: u64,
}

/// The options of the server.
#[allow(clippy::struct_excessive_bools, reason = "independent options")]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerOptions {
    /// Where to listen: `tcp:HOST:PORT` or `unix:PATH`.
    pub listen: Vec<String>,
    /// The certificates of the HTTP port, leaf first, and their key: PEM files. Both or neither.
    pub tls_cert: Option<String>,
    /// See `tls_cert`.
    pub tls_key: Option<String>,
    /// Where programs may dial in to call the models: `unix:PATH` or `tcp:HOST:PORT`.
    pub listen_programs: Vec<String>,
    /// Where agents and workers of other machines connect: `tcp:HOST:PORT`.
    pub workers_listen: Vec<String>,
    /// The file with the secret that the front and its agents share.
    pub workers_secret_file: Option<String>,
    /// How connections of agents and workers are protected: `auto`, `off`, `CERT,KEY` or `CERT,KEY,CA`.
    pub workers_tls: String,
    /// Let agents and workers connect without encryption beyond loopback.
    pub allow_plain_workers: bool,
    /// Where workers of other machines connect, if that is not what their agents dialled.
    pub workers_advertise: Option<String>,
    /// The Ray cluster in which replicas run.
    pub ray_address: Option<String>,
    /// The Ray namespace of the actors that host replicas.
    pub ray_namespace: String,
    /// Where replicas in the Ray cluster connect: `tcp:HOST:PORT`.
    pub ray_listen: Option<String>,
    /// Most workers on this machine.
    pub local: Option<u32>,
    /// Listen beyond loopback although no client needs a key.
    pub allow_unauthenticated: bool,
    /// A file of API keys, one a line.
    pub api_keys_file: Option<String>,
    /// Text and JSON from so many bytes on is compressed if its client takes that; 0: never.
    pub compress_from_bytes: u64,
    /// Answer `GET /metrics` without a key.
    pub open_metrics: bool,
    /// Send clients what a model's exceptions say.
    pub show_errors: bool,
    /// Origins whose pages may call; `*` is every origin.
    pub cors_origin: Vec<String>,
    /// Largest request body.
    pub max_body_bytes: u64,
    /// Most memory that bodies being received may hold together.
    pub max_receiving_bytes: u64,
    /// Most open connections; further ones wait to be accepted.
    pub max_connections: u32,
    /// A request's header must arrive within this.
    pub header_timeout_s: f64,
    /// Longest silence inside a body, and of a client that does not read its answer.
    pub body_timeout_s: f64,
    /// A connection without a request is closed after this.
    pub idle_timeout_s: f64,
    /// Between "not ready" and "stop accepting" at shutdown.
    pub drain_grace_s: f64,
    /// In-flight requests may take this long to finish at shutdown.
    pub drain_timeout_s: f64,
    /// `text` or `json`.
    pub log_format: String,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub log_level: String,
    /// Share of the requests that have a line in the access log.
    pub access_log: f64,
    /// Requests that take longer are traced, whatever else says.
    pub trace_slow_ms: Option<f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A length of time in seconds; what cannot be counted is without end.
pub fn length(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl DeploymentOptions {
    /// A request's deadline when it names none.
    pub fn request_timeout(&self) -> Duration {
        length(self.request_timeout_s)
    }

    /// Fewest and most replicas.
    pub fn replica_bounds(&self) -> (u32, u32) {
        let min = self.min_replicas.unwrap_or(self.replicas);
        (min, self.max_replicas.unwrap_or(self.replicas).max(min))
    }

    /// Whether the number of replicas follows the load.
    pub fn is_elastic(&self) -> bool {
        let (min, max) = self.replica_bounds();
        min < max
    }

    /// Replicas at the start. At least one imports the target and shows that the model can be loaded.
    pub fn first_replicas(&self) -> u32 {
        let (min, max) = self.replica_bounds();
        self.replicas.clamp(min, max).max(1)
    }

    /// The options of a test, which replaces those that it is about. The defaults of users are in Python.
    #[doc(hidden)]
    #[must_use]
    pub fn for_test() -> DeploymentOptions {
        DeploymentOptions {
            max_batch_size: 32,
            max_batch_cost: None,
            policy: "eager".into(),
            max_batch_delay_ms: 0.0,
            latency_target_ms: None,
            replicas: 1,
            min_replicas: None,
            max_replicas: None,
            scale_down_after_s: None,
            min_ready_replicas: 1,
            devices: vec![],
            backend: None,
            num_cpus: 1.0,
            num_gpus: 0.0,
            resources: vec![],
            node_labels: vec![],
            runtime_env: None,
            spread: true,
            openai_names: vec![],
            max_queued_items: 4096,
            max_queued_bytes: 1 << 28,
            max_wait_s: None,
            request_timeout_s: 60.0,
            stream_timeout_s: 600.0,
            batch_timeout_s: 60.0,
            load_timeout_s: 600.0,
            check_interval_s: 10.0,
            context_headers: vec![],
            priority_boost_s: 1.0,
            retry: true,
            batched: true,
            concurrent: false,
            steps: false,
            max_pixels: 1 << 26,
            max_answer_bytes: 64 << 20,
        }
    }
}

impl ServerOptions {
    /// Longest silence inside a body, and of a client that does not read its answer.
    pub fn body_timeout(&self) -> Duration {
        length(self.body_timeout_s)
    }

    /// Bytes that a body may have, as a length in memory.
    pub fn max_body_len(&self) -> usize {
        usize::try_from(self.max_body_bytes).unwrap_or(usize::MAX)
    }

    /// The options of a test, which replaces those that it is about. The defaults of users are in Python.
    #[doc(hidden)]
    #[must_use]
    pub fn for_test() -> ServerOptions {
        ServerOptions {
            listen: vec!["tcp:127.0.0.1:0".into()],
            tls_cert: None,
            tls_key: None,
            listen_programs: vec![],
            workers_listen: vec![],
            workers_secret_file: None,
            workers_tls: "auto".into(),
            allow_plain_workers: false,
            workers_advertise: None,
            ray_address: None,
            ray_namespace: "jitney".into(),
            ray_listen: None,
            local: None,
            allow_unauthenticated: false,
            api_keys_file: None,
            compress_from_bytes: 64 << 10,
            open_metrics: false,
            show_errors: false,
            cors_origin: vec![],
            max_body_bytes: 1 << 20,
            max_receiving_bytes: 4 << 20,
            max_connections: 100,
            header_timeout_s: 10.0,
            body_timeout_s: 10.0,
            idle_timeout_s: 30.0,
            drain_grace_s: 0.0,
            drain_timeout_s: 10.0,
            log_format: "text".into(),
            log_level: "info".into(),
            access_log: 0.0,
            trace_slow_ms: None,
        }
    }
}
