//! Who may connect: programs, with a bounded number of places per listener, and the server's own workers, which may call
//! models and have their own places.

use crate::clients::server::connection::Connection;
use crate::clients::server::newcomers::{Newcomer, Newcomers};
use crate::engine::server_state::ServerState;
use crate::link::frame::writer::widen;
use crate::protocols::connection::listen::Listener;
use crate::protocols::connection::socket::Stream;
use crate::workers::backends::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Programs at once at all listeners. With the next two: more than half of the descriptors that are kept apart from those
/// of requests.
const PROGRAMS: usize = 192;
/// Connections at once, at all listeners, that have not shown a key yet.
const NEWCOMERS: usize = 64;
/// Connections of the server's own workers at once.
const WORKERS: usize = 64;
/// A socket that cannot accept is tried again after this time.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves programs until the stop, then finishes their requests. The server's own workers are served for longer: `predict`
/// may call other models, so that ends only when the requests of all protocols have ended. `others` are the other protocols.
/// Returns when all connections have ended.
pub async fn serve(
    listeners: Vec<Listener>,
    state: Arc<ServerState>,
    stop: watch::Receiver<bool>,
    others: impl Future<Output = ()>,
) {
    admit(listeners, state, stop, others, is_of_a_worker).await;
}

/// Whether the other end is a worker of this server. The kernel knows, for sockets on this machine only.
fn is_of_a_worker(stream: &Stream) -> bool {
    let Stream::Unix(stream) = stream else { return false };
    let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
    process.is_some_and(process::belongs_to_a_worker)
}

async fn admit(
    listeners: Vec<Listener>,
    state: Arc<ServerState>,
    stop: watch::Receiver<bool>,
    others: impl Future<Output = ()>,
    is_of_a_worker: fn(&Stream) -> bool,
) {
    let (end, ends) = watch::channel(false);
    let places = Arc::new(Semaphore::new(WORKERS));
    let workers = Party { connections: Arc::default(), stop: ends, places, is_own: true };
    let programs: Arc<Mutex<JoinSet<()>>> = Arc::default();
    let share = |of: usize| of / listeners.len().max(1);
    let (programs_each, newcomers_each) = (share(PROGRAMS), share(NEWCOMERS).max(1));
    let mut accepting = JoinSet::new();
    for listener in listeners {
        let (state, workers) = (state.clone(), workers.clone());
        // Each listener has its own places: clients at one take none from another.
        let places = Arc::new(Semaphore::new(programs_each));
        let newcomers = Newcomers::new(newcomers_each);
        let programs = Party { connections: programs.clone(), stop: stop.clone(), places, is_own: false };
        // Over TCP a worker looks like any other program, so that listener closes with the stop.
        let closes = (!listener.is_unix()).then(|| stop.clone());
        let open = async move {
            loop {
                match listener.accept().await {
                    Ok(stream) => {
                        let party = if is_of_a_worker(&stream) { &workers } else { &programs };
                        party.receive(stream, state.clone(), &newcomers);
                        // It is read before the next one comes: in a crowd a key that is here already must be seen.
                        tokio::task::yield_now().await;
                    }
                    Err(error) => {
                        tracing::debug!(%error, "cannot accept a program; trying again");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        accepting.spawn(async move {
            match closes {
                Some(mut stop) => tokio::select! { () = open => {} _ = stop.wait_for(|stop| *stop) => {} },
                None => open.await,
            }
        });
    }
    tokio::join!(gone(stop, &programs), others);
    end.send_replace(true);
    accepting.shutdown().await;
    gone(workers.stop, &workers.connections).await;
}

/// Connections that share places and are stopped together.
#[derive(Clone)]
struct Party {
    connections: Arc<Mutex<JoinSet<()>>>,
    stop: watch::Receiver<bool>,
    places: Arc<Semaphore>,
    /// Whether they are of this server's workers.
    is_own: bool,
}

impl Party {
    /// Serves one more. A program that comes after the stop finds the connection ended, and dials again.
    fn receive(&self, stream: Stream, state: Arc<ServerState>, newcomers: &Newcomers) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        // Checked under the lock: an admitted connection is there when `gone` takes them all.
        if *self.stop.borrow() {
            return;
        }
        while connections.try_join_next().is_some() {}
        let newcomer = newcomers.add(&self.places, self.is_own, stream.peer());
        connections.spawn(receive(stream, state, self.stop.clone(), newcomer));
    }
}

/// Waits for the stop, and until all of these connections have ended.
async fn gone(mut stop: watch::Receiver<bool>, connections: &Mutex<JoinSet<()>>) {
    let _ = stop.wait_for(|stop| *stop).await;
    let mut connections = std::mem::take(&mut *connections.lock().unwrap_or_else(PoisonError::into_inner));
    while connections.join_next().await.is_some() {}
}

async fn receive(stream: Stream, state: Arc<ServerState>, stop: watch::Receiver<bool>, newcomer: Newcomer) {
    let ended = match stream {
        Stream::Unix(stream) => {
            widen(&stream);
            let (reader, writer) = stream.into_split();
            Connection::run(reader, writer, state, stop, newcomer).await
        }
        Stream::Tcp(stream) => {
            let (reader, writer) = stream.into_split();
            Connection::run(reader, writer, state, stop, newcomer).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "the connection of a program broke");
    }
}

#[cfg(test)]
mod tests;
