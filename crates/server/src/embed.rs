//! A host inside a process that belongs to somebody else: threads of its own, no signals, no limits changed, no HTTP.
//!
//! A call is a future that any thread may poll: it needs nothing of the runtime. Its first poll sends the items to the
//! engine, its drop cancels them.

use crate::call::{Answer, Failure};
use crate::deployment::Deployment;
use crate::host::{Fatal, Host, Settings};
use crate::item::values::{self, Parts, Terms};
use crate::site::{Readiness, Site};
use crate::supervise::Stop;
use jitney_core::outcome::Outcome;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot, watch};

/// Answers on their way, polled by whoever waits for them.
pub type Answering = Pin<Box<dyn Future<Output = Vec<Answer>> + Send>>;
/// What an engine does that takes its time: start, end.
pub type Doing = Pin<Box<dyn Future<Output = Result<(), Fatal>> + Send>>;

/// One deployment as a program calls it.
#[derive(Clone, Debug)]
pub struct Entrance {
    deployment: Deployment,
    /// Each call holds one that is not weak; the engine ends when none is left.
    inside: mpsc::WeakSender<Infallible>,
}

impl Entrance {
    /// Runs the items of one request: an answer each, in order.
    pub fn call(&self, items: Vec<Parts>, terms: Terms) -> Answering {
        let deployment = self.deployment.clone();
        let inside = self.inside.upgrade();
        Box::pin(async move {
            let Some(_inside) = inside else { return items.iter().map(|_| ended()).collect() };
            values::run(&deployment, items, terms).await
        })
    }
}

fn ended() -> Answer {
    let failure =
        Failure::new(Outcome::Draining, "the `with` block of this engine has ended; call models inside of it");
    Answer::failed(failure)
}

/// An engine inside this process.
#[derive(Debug)]
pub struct Embedded {
    site: Arc<Site>,
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
        let drain_timeout = Duration::try_from_secs_f64(settings.server.drain_timeout_s).unwrap_or(Duration::MAX);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1) // It only moves bytes, and shares the cores with the program that it serves.
            .thread_name("jitney-engine")
            .enable_all()
            .build()
            .map_err(|error| Fatal::new(format!("no threads: {error}")))?;
        let entered = runtime.enter();
        let site = settings.site();
        let host = Host::start(Arc::new(settings), site)?;
        drop(entered);
        let site = host.site.clone();
        let (stop, stops) = mpsc::channel(2);
        let (tell_end, ended) = watch::channel(None);
        runtime.spawn(live(host, stops, tell_end));
        let (inside, left) = mpsc::channel(1);
        Ok(Embedded {
            site,
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
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Everything in the Prometheus text format, as of now. Blocks for as long as the engine needs to tell.
    pub fn metrics(&self) -> Vec<u8> {
        for (_, deployment) in self.site.deployments().into_iter().flatten() {
            drop(deployment.explaining().map(oneshot::Receiver::blocking_recv));
        }
        self.site.telemetry.text()
    }

    /// Whether this is a fork of the process that started it, in which nothing of it runs.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Waits until every model is loaded, or why that will not be.
    pub fn ready(&self) -> Doing {
        let (site, mut ended) = (self.site.clone(), self.ended.clone());
        Box::pin(async move {
            tokio::select! {
                biased;
                end = ended.wait_for(Option::is_some) => {
                    let end = end.ok().and_then(|end| end.clone());
                    end.unwrap_or(Ok(())).and(Err(Fatal::new("the engine was ended before it was ready")))
                }
                () = site.ready() => Ok(()),
            }
        })
    }

    /// Why it has ended, if it did so by itself.
    pub fn failure(&self) -> Option<Fatal> {
        self.ended.borrow().as_ref().and_then(|end| end.as_ref().err().cloned())
    }

    /// The way in to a deployment; `None` if there is none of this name, or it takes no more calls.
    pub fn entrance(&self, name: &str) -> Option<Entrance> {
        let deployment = self.site.deployments()?.get(name)?.clone();
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Entrance { deployment, inside: inside.as_ref()?.downgrade() })
    }

    /// Takes nothing new, lets what is in finish for `drain_timeout_s`, ends the workers. Polling needs no runtime.
    pub fn close(&self) -> Doing {
        let readiness = Readiness { ready: false, reasons: vec!["the engine is ending".into()], draining: true };
        self.site.set_readiness(readiness);
        self.site.deployments().into_iter().flatten().for_each(|(_, deployment)| deployment.close());
        drop(self.inside.lock().unwrap_or_else(PoisonError::into_inner).take());
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

    /// Lets go of threads and workers, as they are, without a wait.
    pub fn release(&self) {
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

/// Runs a host until it ends or is told to.
async fn live(mut host: Host, mut stops: mpsc::Receiver<Stop>, tell: watch::Sender<Option<Result<(), Fatal>>>) {
    let end = loop {
        tokio::select! {
            end = host.ended() => break end,
            Some(stop) = stops.recv() => host.stop(stop),
        }
    };
    // Anything else is told to whoever waits for the start.
    if let Some(fatal) = end.as_ref().err().filter(|fatal| fatal.is_broken()) {
        tracing::error!("{}", fatal.text);
    }
    tell.send_replace(Some(end));
}
