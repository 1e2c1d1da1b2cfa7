//! Who may connect: programs, with a bounded number of places per listener, and the server's own workers, which may call
//! models and have their own places.

use crate::clients::greeting::Refused;
use crate::clients::server::connection::Connection;
use crate::engine::server_state::ServerState;
use crate::link::frame::header::small_frame;
use crate::link::frame::kind::Kind;
use crate::link::frame::writer::widen;
use crate::protocols::connection::listen::Listener;
use crate::protocols::connection::socket::Stream;
use crate::workers::process;
use rustix::net::{SendFlags, send};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Programs at once at all listeners, also those that have not shown a key yet: half of the descriptors that are kept
/// apart from those of requests, together with the workers'.
const PROGRAMS: usize = 192;
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
    let share = places_per_listener(listeners.len());
    let mut accepting = JoinSet::new();
    for listener in listeners {
        let (state, workers) = (state.clone(), workers.clone());
        // Each listener has its own places: clients at one take none from another.
        let places = Arc::new(Semaphore::new(share));
        let programs = Party { connections: programs.clone(), stop: stop.clone(), places, is_own: false };
        // Over TCP a worker looks like any other program, so that listener closes with the stop.
        let closes = (!listener.is_unix()).then(|| stop.clone());
        let open = async move {
            loop {
                match listener.accept().await {
                    Ok(stream) if is_of_a_worker(&stream) => workers.receive(stream, state.clone()),
                    Ok(stream) => programs.receive(stream, state.clone()),
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

/// Programs at once of one listener of so many.
fn places_per_listener(listeners: usize) -> usize {
    PROGRAMS / listeners.max(1)
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
    fn receive(&self, stream: Stream, state: Arc<ServerState>) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        // Checked under the lock: an admitted connection is there when `gone` takes them all.
        if *self.stop.borrow() {
            return;
        }
        while connections.try_join_next().is_some() {}
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            refuse(&stream);
            return;
        };
        let receiving = receive(stream, state, self.stop.clone(), self.is_own);
        connections.spawn(async move {
            let _place = place;
            receiving.await;
        });
    }
}

/// Waits for the stop, and until all of these connections have ended.
async fn gone(mut stop: watch::Receiver<bool>, connections: &Mutex<JoinSet<()>>) {
    let _ = stop.wait_for(|stop| *stop).await;
    let mut connections = std::mem::take(&mut *connections.lock().unwrap_or_else(PoisonError::into_inner));
    while connections.join_next().await.is_some() {}
}

/// Asks a program for which there is no place to dial again, at growing intervals.
fn refuse(stream: &Stream) {
    let why = "it serves as many programs as it can; this one dials again".to_owned();
    let refused = serde_json::to_vec(&Refused { why, is_temporary: true }).unwrap_or_default();
    let frame = small_frame(Kind::Refused, &refused);
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // A few bytes into a new socket never wait; if they do not fit, the connection ends without a reason.
    let _ = match stream {
        Stream::Unix(stream) => send(stream, &frame[0], flags),
        Stream::Tcp(stream) => send(stream, &frame[0], flags),
    };
    tracing::debug!("a program was turned away: all places are taken");
}

async fn receive(stream: Stream, state: Arc<ServerState>, stop: watch::Receiver<bool>, is_own: bool) {
    let ended = match stream {
        Stream::Unix(stream) => {
            widen(&stream);
            let (reader, writer) = stream.into_split();
            Connection::run(reader, writer, state, stop, is_own).await
        }
        Stream::Tcp(stream) => {
            let (reader, writer) = stream.into_split();
            Connection::run(reader, writer, state, stop, is_own).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "the connection of a program broke");
    }
}

#[cfg(test)]
mod tests;
