//! Links of workers: where they connect, and which worker it is that connects.

use crate::base::clock::Clock;
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::FrameReader;
use crate::link::frame::writer::widen;
use crate::link::front::hello::{Hello, greet};
use crate::link::front::receiver;
use crate::link::front::worker_event::WorkerEvent;
use jitney_core::request::ReplicaId;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// After this a socket that cannot accept is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Admits the connections of workers that this server started. Each says hello with its own token, which is valid once.
#[derive(Debug)]
pub(crate) struct Registry {
    address: String,
    random: File,
    expected: Expected,
}

/// The workers that have not connected yet, by token.
#[derive(Clone, Debug, Default)]
struct Expected(Arc<Mutex<HashMap<String, ReplicaId>>>);

impl Expected {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, ReplicaId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    /// Listens at a Unix socket. Each link is reported as connected.
    pub(crate) fn listen(
        path: &Path,
        clock: Clock,
        events: mpsc::UnboundedSender<WorkerEvent>,
    ) -> std::io::Result<Registry> {
        let listener = UnixListener::bind(path)?;
        let random = File::open("/dev/urandom")?;
        let expected = Expected::default();
        tokio::spawn(accept(listener, expected.clone(), clock, events));
        Ok(Registry { address: format!("unix:{}", path.display()), random, expected })
    }

    /// Where workers connect.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Expects a worker; it must say the token that is returned: 128 random bits, as hex.
    pub(crate) fn expect(&self, worker: ReplicaId) -> std::io::Result<String> {
        let mut bytes = [0u8; 16];
        (&self.random).read_exact(&mut bytes)?;
        let token = format!("{:032x}", u128::from_le_bytes(bytes));
        self.expected.lock().insert(token.clone(), worker);
        Ok(token)
    }

    /// Expects a worker no more.
    pub(crate) fn forget(&self, worker: ReplicaId) {
        self.expected.lock().retain(|_, expected| *expected != worker);
    }
}

async fn accept(listener: UnixListener, expected: Expected, clock: Clock, events: mpsc::UnboundedSender<WorkerEvent>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        tokio::spawn(connect(stream, expected.clone(), clock, events.clone()));
    }
}

async fn connect(stream: UnixStream, expected: Expected, clock: Clock, events: mpsc::UnboundedSender<WorkerEvent>) {
    widen(&stream);
    let (reader, writer) = stream.into_split();
    let mut reader = FrameReader::new(reader);
    let hello = match greet(&mut reader).await {
        Ok(hello) => hello,
        Err(error) => return tracing::debug!(%error, "a connection to the worker socket sent no hello"),
    };
    let Some(worker) = expected.lock().remove(&hello.token) else {
        return tracing::warn!("a connection to the worker socket had a token that is not valid, or not any more");
    };
    tracing::debug!(worker = worker.0, host = hello.host, devices = ?hello.devices, "a worker has connected");
    if let Err(error) = check_version(&hello) {
        let body = serde_json::json!({ "stage": "connecting", "error": error }).to_string();
        // Without a supervisor the server is going down.
        let _ = events.send(WorkerEvent::Message(worker, Kind::Failed, body.into()));
        return;
    }
    receiver::start(reader, writer, worker, clock, events);
}

fn check_version(hello: &Hello) -> Result<(), String> {
    let own = env!("CARGO_PKG_VERSION");
    if hello.version == own {
        return Ok(());
    }
    Err(format!("the worker runs jitney {}, the server {own}; install the same version for both", hello.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(version: &str) -> Hello {
        Hello { version: version.into(), token: "t".into(), host: "h".into(), devices: Vec::new() }
    }

    #[test]
    fn a_worker_of_another_version_is_refused_with_both_versions() {
        assert_eq!(check_version(&hello(env!("CARGO_PKG_VERSION"))), Ok(()));
        let error = check_version(&hello("0.0.7")).unwrap_err();
        assert!(error.contains("0.0.7") && error.contains(env!("CARGO_PKG_VERSION")), "{error}");
    }

    #[tokio::test]
    async fn tokens_differ_and_are_good_for_one_hello() {
        let folder = tempfile::tempdir().unwrap();
        let (events, mut reported) = mpsc::unbounded_channel();
        let registry = Registry::listen(&folder.path().join("w"), Clock::default(), events).unwrap();
        let (first, second) = (registry.expect(ReplicaId(1)).unwrap(), registry.expect(ReplicaId(2)).unwrap());
        assert!(first != second && first.len() == 32);
        let dial = |token: &str| {
            let (address, token) = (registry.address().to_owned(), token.to_owned());
            tokio::task::spawn_blocking(move || crate::link::worker::link::WorkerLink::connect(&address, &token, || {}))
        };
        let link = dial(&first).await.unwrap().unwrap();
        assert!(matches!(reported.recv().await, Some(WorkerEvent::Connected(ReplicaId(1), _))));
        registry.forget(ReplicaId(2));
        let strangers = [dial(&first).await.unwrap().unwrap(), dial(&second).await.unwrap().unwrap()];
        drop(link);
        assert!(matches!(reported.recv().await, Some(WorkerEvent::LinkLost(ReplicaId(1)))));
        drop(strangers);
        assert!(reported.try_recv().is_err());
    }
}
