//! A host inside a process that belongs to somebody else: its own threads, no signals, no limits changed, no HTTP.
//!
//! A call is a future that any thread may poll: it does not need the runtime. Its first poll sends the items to the
//! engine, its drop cancels them.

use crate::base::fatal::{Doing, Fatal};
use crate::base::telemetry::workers;
use crate::engine::deployment::Deployment;
use crate::engine::program_values;
use crate::engine::program_values::parts::{BoxedCallParts, CallingProgram, EndedParts, LazyParts, OwnParts, open};
use crate::engine::program_values::{Answering, AnsweringOne, Parts, Terms};
use crate::engine::readiness::Readiness;
use crate::engine::reply::UnreadParts;
use crate::engine::server_state::ServerState;
use crate::engine::server_state::live::hub::WatcherEvents;
use crate::run::engine_host::EngineHost;
use crate::values::answer::{Answer, Failure};
use crate::workers::settings::Settings;
use crate::workers::supervisor::state::Stop;
use bytes::Bytes;
use jitney_core::config::options::length;
use jitney_core::tables::outcome::Outcome;
use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot, watch};

/// One deployment as a program calls it.
#[derive(Clone, Debug)]
pub struct LocalEntrance {
    deployment: Arc<Deployment>,
    /// Where parts count that the program has not taken. Each answer has a part of the account.
    unread: UnreadParts,
    /// Each call holds one that is not weak; the engine ends when none is left.
    inside: mpsc::WeakSender<Infallible>,
}

impl LocalEntrance {
    /// Runs a request of one item.
    pub fn call_one(&self, parts: Parts, terms: Terms) -> AnsweringOne {
        match self.inside.upgrade() {
            Some(inside) => program_values::run_one(self.deployment.clone(), parts, terms, inside),
            None => Box::pin(ready(ended())),
        }
    }

    /// Runs the items of one request: an answer each, in order.
    pub fn call(&self, items: Vec<Parts>, terms: Terms) -> Answering {
        let deployment = self.deployment.clone();
        let inside = self.inside.upgrade();
        Box::pin(async move {
            let Some(_inside) = inside else { return items.iter().map(|_| ended()).collect() };
            program_values::run(&deployment, items, terms).await
        })
    }

    /// Runs one item whose answer comes in parts. The first poll sends the item to the engine.
    pub fn stream(&self, item: Parts, terms: Terms) -> BoxedCallParts {
        let Some(inside) = self.inside.upgrade() else { return Box::new(EndedParts(Some(ended()))) };
        let UnreadParts { account, .. } = &self.unread;
        let program = CallingProgram::Own(UnreadParts { account: account.part(), ..self.unread.clone() });
        let deployment = self.deployment.clone();
        let opening = async move {
            let parts = open(deployment, item, terms, 0, program).await.map_err(|refused| refused.0)?;
            Ok(Box::new(OwnParts(parts)) as BoxedCallParts)
        };
        Box::new(LazyParts::new(Box::pin(opening), inside))
    }
}

fn ended() -> Answer {
    let failure =
        Failure::new(Outcome::Draining, "the `with` block of this engine has ended; call models inside of it");
    Answer::failed(failure)
}

/// The events of one watcher of the live page.
#[derive(Debug)]
pub struct LiveEvents {
    /// The history, until it was taken.
    first: Option<Bytes>,
    events: WatcherEvents,
}

impl Iterator for LiveEvents {
    type Item = Bytes;

    /// Waits on this thread for the next event; `None` at the end.
    fn next(&mut self) -> Option<Bytes> {
        self.first.take().or_else(|| self.events.blocking_recv())
    }
}

/// An engine inside this process.
#[derive(Debug)]
pub struct Embedded {
    state: Arc<ServerState>,
    /// `None` once it was let go of.
    runtime: Mutex<Option<Runtime>>,
    stop: mpsc::Sender<Stop>,
    ended: watch::Receiver<Option<Result<(), Fatal>>>,
    /// `None` once it takes no more calls.
    inside: Mutex<Option<mpsc::Sender<Infallible>>>,
    /// Gives `None` when the last call has left.
    left: Arc<tokio::sync::Mutex<mpsc::Receiver<Infallible>>>,
    /// The process that it lives in: a fork of it has this memory and none of the threads.
    process: u32,
    drain_timeout: Duration,
}

impl Embedded {
    /// Starts its thread and the workers; `ready` says when they can be called.
    pub fn start(settings: Settings) -> Result<Embedded, Fatal> {
        let drain_timeout = length(settings.server.drain_timeout_s);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1) // It only moves bytes, and shares the cores with the program that it serves.
            .thread_name("jitney-engine")
            .enable_all()
            .build()
            .map_err(|error| Fatal::new(format!("no threads: {error}")))?;
        let state = settings.state();
        let host = runtime.block_on(EngineHost::start(Arc::new(settings), state))?;
        let state = host.state.clone();
        let (stop, stops) = mpsc::channel(2);
        let (tell_end, ended) = watch::channel(None);
        runtime.spawn(live(host, stops, tell_end));
        let (inside, left) = mpsc::channel(1);
        Ok(Embedded {
            state,
            runtime: Mutex::new(Some(runtime)),
            stop,
            ended,
            inside: Mutex::new(Some(inside)),
            left: Arc::new(tokio::sync::Mutex::new(left)),
            process: std::process::id(),
            drain_timeout,
        })
    }

    /// What is served, and what it says of itself.
    pub fn state(&self) -> &ServerState {
        &self.state
    }

    /// Everything in the Prometheus text format, as of now. Blocks for as long as the engine needs to answer.
    pub fn metrics(&self) -> Vec<u8> {
        for deployment in self.state.deployments() {
            let _ = deployment.showing_learned().map(oneshot::Receiver::blocking_recv);
        }
        let Embedded { state, .. } = self;
        let seen = state.workers.ask().and_then(|seen| seen.blocking_recv().ok()).unwrap_or_default();
        workers::text(&state.telemetry, &state.workers, &seen).into_bytes()
    }

    /// The events of the live page. If as many watch as may, the stream of the one that has watched for longest ends.
    pub fn watch(&self) -> LiveEvents {
        let events = self.state.live.watch();
        LiveEvents { first: Some(self.state.live.history()), events }
    }

    /// Whether this is a fork of the process that started it, in which no part of it runs.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Waits until every model is loaded, or why that will not be.
    pub fn ready(&self) -> Doing {
        let (state, mut ended) = (self.state.clone(), self.ended.clone());
        Box::pin(async move {
            tokio::select! {
                biased;
                end = ended.wait_for(Option::is_some) => {
                    let end = end.ok().and_then(|end| end.clone());
                    end.unwrap_or(Ok(())).and(Err(Fatal::new("the engine was ended before it was ready")))
                }
                () = state.ready() => Ok(()),
            }
        })
    }

    /// Why it has ended, if it did so by itself.
    pub fn failure(&self) -> Option<Fatal> {
        self.ended.borrow().as_ref().and_then(|end| end.as_ref().err().cloned())
    }

    /// The way in to a deployment; `None` if there is none of this name, or it takes no more calls.
    pub fn entrance(&self, name: &str) -> Option<LocalEntrance> {
        let deployment = self.state.deployment(name)?;
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.state.options.max_receiving_bytes;
        let unread = UnreadParts { account: self.state.ledger.untaken.clone(), limit, silence: None };
        Some(LocalEntrance { deployment, unread, inside: inside.as_ref()?.downgrade() })
    }

    /// Takes nothing new, lets requests in flight finish for `drain_timeout_s`, ends the workers. Polling needs no runtime.
    pub fn close(&self) -> Doing {
        self.state.set_readiness(Readiness::ending("the engine is ending"));
        self.state.deployments().iter().for_each(|deployment| deployment.close());
        drop(self.inside.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.state.live.close();
        let (left, stop, mut ended, drain_timeout) =
            (self.left.clone(), self.stop.clone(), self.ended.clone(), self.drain_timeout);
        let closing = async move {
            let nobody = async {
                let _ = left.lock().await.recv().await;
            };
            let drained = tokio::time::timeout(drain_timeout, nobody).await;
            if drained.is_err() {
                tracing::warn!("calls were still open after drain_timeout_s = {}", drain_timeout.as_secs_f64());
            }
            // Gone already if the engine has ended by itself.
            let _ = stop.send(Stop::InOrder).await;
            let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
            end.unwrap_or(Ok(()))
        };
        match &*self.runtime.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(runtime) => {
                let closing = runtime.spawn(closing);
                Box::pin(async move { closing.await.unwrap_or(Ok(())) })
            }
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }

    /// Lets go of threads and workers, in any state, without a wait.
    pub fn release(&self) {
        // Nothing else would wake a thread that waits for its next event.
        self.state.live.close();
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        match runtime {
            // Its threads are not in this process: nothing could ever join them.
            Some(runtime) if self.is_forked() => std::mem::forget(runtime),
            Some(runtime) => runtime.shutdown_background(),
            None => {}
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.release();
    }
}

/// Runs a host until it ends or is stopped.
async fn live(mut host: EngineHost, mut stops: mpsc::Receiver<Stop>, tell: watch::Sender<Option<Result<(), Fatal>>>) {
    let end = loop {
        tokio::select! {
            end = host.ended() => break end,
            Some(stop) = stops.recv() => host.stop(stop),
        }
    };
    // The caller that waits for the start gets all other errors.
    if let Some(fatal) = end.as_ref().err().filter(|fatal| fatal.is_broken()) {
        tracing::error!("{}", fatal.text);
    }
    tell.send_replace(Some(end));
}
