//! One worker in this process (`jitney serve --inline`): the program's main thread asks for it, and runs it.

use crate::link::front::worker_event::WorkerEvent;
use crate::workers::backends::backend::{Backend, WorkerSpec};
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::ReplicaId;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::UnboundedSender;

/// The workers that this process is to run, one after the other.
#[derive(Debug)]
pub struct InlineWorkers {
    /// `None` when there will be no more.
    specs: Mutex<Option<Sender<String>>>,
    queue: Mutex<Receiver<String>>,
    /// The worker that has started and not ended, and the channel to which its end is reported.
    current: Mutex<Option<(ReplicaId, UnboundedSender<WorkerEvent>)>>,
}

impl Default for InlineWorkers {
    fn default() -> InlineWorkers {
        let (specs, queue) = channel();
        InlineWorkers { specs: Mutex::new(Some(specs)), queue: Mutex::new(queue), current: Mutex::default() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InlineWorkers {
    /// Waits for the next worker to run; its specification as JSON, or `None` when the server has ended.
    pub fn next(&self) -> Option<String> {
        lock(&self.queue).recv().ok()
    }

    /// The worker of this number has ended.
    pub fn ended(&self, worker: ReplicaId) {
        let ended = lock(&self.current).take_if(|(current, _)| *current == worker);
        if let Some((_, events)) = ended {
            // Without a supervisor the server is going down.
            let _ = events.send(WorkerEvent::Exited(worker, "it ended".into(), Loss::Crashed));
        }
    }

    /// There will be no more workers: the server has ended.
    pub fn close(&self) {
        *lock(&self.specs) = None;
    }
}

/// Hands workers to this process.
#[derive(Debug)]
pub(crate) struct Inline {
    pub(crate) workers: std::sync::Arc<InlineWorkers>,
    pub(crate) events: UnboundedSender<WorkerEvent>,
}

impl Backend for Inline {
    fn start(&self, worker: ReplicaId, spec: WorkerSpec) {
        let mut text = serde_json::to_value(spec).unwrap_or_default();
        text["parent"] = std::process::id().into();
        *lock(&self.workers.current) = Some((worker, self.events.clone()));
        let is_sent = lock(&self.workers.specs).as_ref().is_some_and(|specs| specs.send(text.to_string()).is_ok());
        if is_sent {
            let _ = self.events.send(WorkerEvent::Started(worker));
        } else {
            self.workers.ended(worker);
        }
    }

    /// Code of this process cannot be ended: the worker is given up.
    fn kill(&self, worker: ReplicaId) {
        self.workers.ended(worker);
    }

    fn kill_with_stacks(&self, worker: ReplicaId) {
        self.kill(worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::mpsc::unbounded_channel;

    const WORKER: ReplicaId = ReplicaId(3);

    #[test]
    fn a_worker_is_handed_over_and_its_end_is_reported_once() {
        let (events, mut reported) = unbounded_channel();
        let workers = Arc::new(InlineWorkers::default());
        let backend = Inline { workers: workers.clone(), events };
        backend.start(WORKER, WorkerSpec::for_test(WORKER));
        assert!(workers.next().unwrap().contains("\"target\":\"m.py\""));
        workers.ended(ReplicaId(2));
        workers.ended(WORKER);
        backend.kill(WORKER);
        assert!(matches!(reported.try_recv(), Ok(WorkerEvent::Started(WORKER))));
        assert!(matches!(reported.try_recv(), Ok(WorkerEvent::Exited(WORKER, _, Loss::Crashed))));
        assert!(reported.try_recv().is_err());
        workers.close();
        assert_eq!(workers.next(), None);
        backend.start(WORKER, WorkerSpec::for_test(WORKER));
        assert!(matches!(reported.try_recv(), Ok(WorkerEvent::Exited(WORKER, _, Loss::Crashed))));
    }
}
