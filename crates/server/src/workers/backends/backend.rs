//! Where workers run: this contract, and for processes of this machine `process.rs`.

use jitney_core::request::ReplicaId;

/// Starts and ends workers. What becomes of a worker is reported to the supervisor as events: `Started` if it could be
/// started, and `Exited` exactly once in any case.
pub trait Backend: std::fmt::Debug + Send {
    /// Starts a worker.
    fn start(&self, worker: ReplicaId, spec: WorkerSpec);

    /// Ends a worker and everything that it has started, at once. Does nothing if it has ended.
    fn kill(&self, worker: ReplicaId);

    /// The process id of a worker that is a separate process of this machine.
    fn pid(&self, _worker: ReplicaId) -> Option<u32> {
        None
    }

    /// Like `kill`, but the worker first writes to its log where each of its threads is.
    fn kill_with_stacks(&self, worker: ReplicaId);
}

/// How workers log and how their output is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerLog {
    /// Lines of text.
    Text,
    /// Lines of JSON.
    Json,
    /// As records of the log of the program that has the engine; what models print is text.
    Program,
}

/// What a worker must know before it can speak to the front.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct WorkerSpec {
    /// The address that it connects to. An agent adds how the worker knows the front.
    pub address: String,
    /// The secret that it sends to the front. It admits one connection.
    pub token: String,
    /// Its number, for logs.
    pub worker: u32,
    /// 128 random bits, as hex: the name of a worker on another machine between the front, its agent and itself, for as long as
    /// it lives. Empty on this machine.
    pub id: String,
    /// Which target and which options it has. It says that to a front to which it comes back.
    pub options_hash: String,
    /// The target that it imports.
    pub target: String,
    /// Layers of options; the worker resolves them.
    pub overrides: serde_json::Value,
    /// The cores that its libraries may use. Libraries read this at their import, so it cannot come later.
    pub cpu_threads: u32,
    /// Whether another worker was started before it to import the same target, and reports why that fails.
    pub is_further: bool,
    /// Folders in which modules are looked for after all others.
    pub path: Vec<String>,
    /// Whether what it logs is JSON.
    pub logs_json: bool,
    /// Variables of its environment, which is that of the process that starts it.
    #[serde(skip)]
    pub variables: Vec<(String, String)>,
}

#[cfg(test)]
impl WorkerSpec {
    /// A worker with this number, of a target that no test imports.
    pub(crate) fn for_test(worker: ReplicaId) -> WorkerSpec {
        WorkerSpec {
            address: "unix:none".into(),
            token: "t".into(),
            worker: worker.0,
            id: String::new(),
            options_hash: String::new(),
            target: "m.py".into(),
            overrides: serde_json::Value::Null,
            is_further: false,
            cpu_threads: 1,
            path: Vec::new(),
            logs_json: false,
            variables: Vec::new(),
        }
    }
}
