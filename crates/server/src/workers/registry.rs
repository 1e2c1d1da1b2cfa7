//! Links of workers: where they connect, and which worker it is that connects.

use crate::base::clock::Clock;
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::FrameReader;
use crate::link::frame::writer::widen;
use crate::link::front::agents;
use crate::link::front::hello::{Hello, greet};
use crate::link::front::port::Port;
use crate::link::front::receiver;
use crate::link::front::worker_event::WorkerEvent;
use jitney_channel::Peer;
use jitney_core::request::ReplicaId;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
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
    /// The public key of the front, for workers of other machines, by the engine whose agents use the port.
    pins: HashMap<&'static str, String>,
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
        Ok(Registry { address: format!("unix:{}", path.display()), random, expected, pins: HashMap::new() })
    }

    /// Admits agents and workers of other machines, too, which connect to this port. Its agents are those of an engine; empty:
    /// of people and their tools.
    pub(crate) fn open(
        &mut self,
        port: Port,
        engine: &'static str,
        clock: Clock,
        events: mpsc::UnboundedSender<WorkerEvent>,
    ) {
        let pin = port.address().ok().and_then(|address| address.pin);
        self.pins.insert(engine, pin.map(|pin| pin.to_string()).unwrap_or_default());
        let expected = self.expected.clone();
        tokio::spawn(port.serve(move |arrival| {
            let (expected, events, clock) = (expected.clone(), events.clone(), clock);
            async move {
                if arrival.peer == Peer::Agent {
                    return agents::welcome(arrival.stream, engine, clock, events).await;
                }
                let (reader, writer) = tokio::io::split(arrival.stream);
                admit(reader, writer, &expected, clock, events).await
            }
        }));
    }

    /// Where workers connect.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Where a worker of another machine connects: to this address of the front (`tcp:HOST:PORT`), at the port of this engine.
    pub(crate) fn remote_address(&self, front: &str, engine: &str) -> String {
        format!("{front}#{}", self.pins.get(engine).map(String::as_str).unwrap_or_default())
    }

    /// The name of a new worker: 128 random bits, as hex.
    pub(crate) fn name(&self) -> std::io::Result<String> {
        let mut bytes = [0u8; 16];
        (&self.random).read_exact(&mut bytes)?;
        Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
    }

    /// Expects a worker; it must say the token that is returned: 128 random bits, as hex.
    pub(crate) fn expect(&self, worker: ReplicaId) -> std::io::Result<String> {
        let token = self.name()?;
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
    if let Err(reason) = admit(reader, writer, &expected, clock, events).await {
        tracing::warn!(reason, "a connection to the worker socket was refused");
    }
}

/// Starts the link of a worker that says a valid token first; an error says why it is refused.
async fn admit<R, W>(
    reader: R,
    writer: W,
    expected: &Expected,
    clock: Clock,
    events: mpsc::UnboundedSender<WorkerEvent>,
) -> Result<(), String>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let mut reader = FrameReader::new(reader);
    let hello = greet(&mut reader).await.map_err(|error| format!("it sent no hello: {error}"))?;
    let worker = expected.lock().remove(&hello.token).ok_or("its token is not valid, or not any more")?;
    tracing::debug!(worker = worker.0, host = hello.host, devices = ?hello.devices, "a worker has connected");
    if let Err(error) = check_version(&hello) {
        let body = serde_json::json!({ "stage": "connecting", "error": error }).to_string();
        // Without a supervisor the server is going down.
        let _ = events.send(WorkerEvent::Message(worker, Kind::Failed, body.into()));
        return Ok(());
    }
    receiver::start(reader, writer, worker, clock, events);
    Ok(())
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
    use crate::link::worker::inbox::Control;
    use crate::link::worker::lease::Identity;
    use crate::link::worker::link::WorkerLink;

    fn hello(version: &str) -> Hello {
        Hello {
            version: version.into(),
            token: "t".into(),
            host: "h".into(),
            devices: Vec::new(),
            id: String::new(),
            rejoin: None,
        }
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
            let identity = Identity { token, ..Identity::default() };
            tokio::task::spawn_blocking(move || WorkerLink::connect(&address, identity, || {}))
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

    #[tokio::test]
    async fn a_worker_of_another_machine_connects_over_tls() {
        let folder = tempfile::tempdir().unwrap();
        let (events, mut reported) = mpsc::unbounded_channel();
        let clock = Clock::default();
        let mut registry = Registry::listen(&folder.path().join("w"), clock, events.clone()).unwrap();
        let secret = jitney_channel::Secret::new(&"a".repeat(32)).unwrap();
        let port = Port::listen("127.0.0.1:0", &secret).await.unwrap();
        let address = port.address().unwrap().to_string();
        registry.open(port, "", clock, events);
        let token = registry.expect(ReplicaId(1)).unwrap();
        let dial = |address: String, token: String| {
            let identity = Identity { token, ..Identity::default() };
            tokio::task::spawn_blocking(move || WorkerLink::connect(&address, identity, || {}))
        };
        let stranger = dial(address.clone(), "a wrong token".into()).await.unwrap().unwrap();
        assert!(matches!(tokio::task::spawn_blocking(move || stranger.receive()).await.unwrap(), Control::Shutdown));
        let worker = dial(address.clone(), token).await.unwrap().unwrap();
        let Some(WorkerEvent::Connected(ReplicaId(1), link)) = reported.recv().await else { panic!("no link") };
        let large = vec![b'x'; 1 << 20];
        link.assign(&large);
        let received = tokio::task::spawn_blocking(move || (worker.receive(), worker)).await.unwrap();
        assert_eq!(received.0, Control::Assign(large));
        received.1.control(Kind::Ready, b"{}").unwrap();
        assert!(matches!(reported.recv().await, Some(WorkerEvent::Message(ReplicaId(1), Kind::Ready, _))));
        let bare = address.split('#').next().unwrap().to_owned();
        let error = dial(bare, String::new()).await.unwrap().unwrap_err();
        assert!(error.to_string().contains("#PIN"));
    }
}
