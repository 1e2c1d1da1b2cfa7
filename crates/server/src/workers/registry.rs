//! Links of workers: where they connect, and which worker it is that connects.

use crate::base::clock::Clock;
use crate::link::frame::header::small_frame;
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::FrameReader;
use crate::link::frame::writer::widen;
use crate::link::front::agents;
use crate::link::front::hello::{Hello, Returned, greet, read_manifest};
use crate::link::front::port::{Arrival, WorkerPorts};
use crate::link::front::receiver;
use crate::link::front::worker_event::WorkerEvent;
use jitney_channel::{Peer, Tokens};
use jitney_core::request::ReplicaId;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// After this a socket that cannot accept is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Admits the connections of workers. Each says hello with its own token, which is valid once. A worker of this machine was
/// started by this server; one of another machine may have been started by an earlier front with the same secret.
#[derive(Debug)]
pub(crate) struct Registry {
    address: String,
    random: File,
    door: Door,
}

/// What connections need; cheap to share.
#[derive(Clone, Debug)]
struct Door {
    expected: Arc<Mutex<HashMap<Proof, ReplicaId>>>,
    /// The number of the next worker, or of the next link of a worker that comes back.
    next: Arc<AtomicU32>,
    tokens: Option<Arc<Tokens>>,
    clock: Clock,
    events: mpsc::UnboundedSender<WorkerEvent>,
}

/// By what a worker is known that has not connected yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Proof {
    /// The token of a worker of this machine.
    Token(String),
    /// The name of a worker of another machine, whose tokens are computed.
    Name(String),
}

impl Door {
    fn expected(&self) -> MutexGuard<'_, HashMap<Proof, ReplicaId>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> ReplicaId {
        ReplicaId(self.next.fetch_add(1, Ordering::Relaxed))
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
        let door = Door { expected: Arc::default(), next: Arc::default(), tokens: None, clock, events };
        tokio::spawn(accept(listener, door.clone()));
        Ok(Registry { address: format!("unix:{}", path.display()), random, door })
    }

    /// Admits agents and workers of other machines, too, which connect to these ports. The agents are those of an engine; empty: of
    /// people and their tools. All ports take the tokens of the first ones.
    pub(crate) fn open(&mut self, WorkerPorts { ports, tokens }: WorkerPorts, engine: &'static str) {
        self.door.tokens.get_or_insert(tokens);
        for port in ports {
            let door = self.door.clone();
            tokio::spawn(port.serve(move |arrival| welcome(arrival, engine, door.clone())));
        }
    }

    /// Where workers connect.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The number of a new worker.
    pub(crate) fn number(&self) -> ReplicaId {
        self.door.number()
    }

    /// The name of a new worker: 128 random bits, as hex.
    pub(crate) fn name(&self) -> std::io::Result<String> {
        let mut bytes = [0u8; 16];
        (&self.random).read_exact(&mut bytes)?;
        Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
    }

    /// Expects a worker of this machine; it must say the token that is returned: 128 random bits, as hex.
    pub(crate) fn expect(&self, worker: ReplicaId) -> std::io::Result<String> {
        let token = self.name()?;
        self.door.expected().insert(Proof::Token(token.clone()), worker);
        Ok(token)
    }

    /// Expects a worker of another machine by its name; returns its first token.
    pub(crate) fn expect_remote(&self, worker: ReplicaId, id: &str) -> String {
        self.door.expected().insert(Proof::Name(id.to_owned()), worker);
        self.next_token(id)
    }

    /// A token for the next connection of a worker of another machine.
    pub(crate) fn next_token(&self, id: &str) -> String {
        self.door.tokens.as_ref().map(|tokens| tokens.issue(id)).unwrap_or_default()
    }

    /// Shows whether another text is the same one, also to a front that was started again.
    pub(crate) fn fingerprint(&self, text: &str) -> String {
        self.door.tokens.as_ref().map(|tokens| tokens.fingerprint(text)).unwrap_or_default()
    }

    /// Expects a worker no more.
    pub(crate) fn forget(&self, worker: ReplicaId) {
        self.door.expected().retain(|_, expected| *expected != worker);
    }
}

async fn accept(listener: UnixListener, door: Door) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        tokio::spawn(connect(stream, door.clone()));
    }
}

async fn connect(stream: UnixStream, door: Door) {
    widen(&stream);
    let (reader, writer) = stream.into_split();
    match admit(reader, writer, &door).await {
        Ok(()) => {}
        // Another server looks whether this one lives (`leftovers`).
        Err(Refused::Silent) => tracing::debug!("a connection to the worker socket ended without a word"),
        Err(Refused::For(reason)) => tracing::warn!("a connection to the worker socket was refused: {reason}"),
    }
}

/// Why a connection of this machine has become no link.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    /// It sent nothing.
    Silent,
    /// For this reason.
    For(String),
}

/// Starts the link of a worker of this machine that says a valid token first.
async fn admit<R, W>(reader: R, writer: W, door: &Door) -> Result<(), Refused>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let mut reader = FrameReader::new(reader);
    let hello = greet(&mut reader).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Refused::Silent,
        _ => Refused::For(no_hello(&error)),
    })?;
    let worker = door.expected().remove(&Proof::Token(hello.token.clone()));
    let worker = worker.ok_or_else(|| Refused::For(NOT_VALID.into()))?;
    begin(reader, writer, worker, &hello, door);
    Ok(())
}

/// Starts the link of a worker of another machine, or lets an agent join.
async fn welcome(arrival: Arrival, engine: &'static str, door: Door) -> Result<(), String> {
    let Arrival { stream, peer, place, .. } = arrival;
    if peer == Peer::Agent {
        drop(place); // It has the secret.
        return agents::welcome(stream, engine, door.clock, door.events).await;
    }
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = FrameReader::new(reader);
    let hello = greet(&mut reader).await.map_err(|error| no_hello(&error))?;
    let is_valid = door.tokens.as_ref().is_some_and(|tokens| tokens.redeem(&hello.id, &hello.token));
    if !is_valid {
        return Err(NOT_VALID.into());
    }
    // Its token is used up: it could not come again.
    drop(place);
    let Some(loaded) = hello.rejoin.clone() else {
        let worker = door.expected().remove(&Proof::Name(hello.id.clone())).ok_or("no such worker is expected")?;
        begin(reader, writer, worker, &hello, &door);
        return Ok(());
    };
    if let Err(why) = check_version(&hello) {
        // It ends. Frames of other versions may differ, so it learns no reason.
        let _ = writer.write_all(&small_frame(Kind::Shutdown, b"")[0]).await;
        let _ = writer.shutdown().await;
        return Err(why);
    }
    let manifest = read_manifest(&mut reader).await.map_err(|error| format!("it sent no manifest: {error}"))?;
    let worker = door.number();
    receiver::start_with(reader, writer, worker, door.clock, door.events, |link| {
        let Hello { id, host, .. } = hello;
        WorkerEvent::Returned(worker, Box::new(Returned { id, host, loaded, manifest, link }))
    });
    Ok(())
}

const NOT_VALID: &str = "its token is wrong, or was used before";

fn no_hello(error: &std::io::Error) -> String {
    format!("it sent no hello: {error}")
}

/// Starts the link of a worker that was expected, unless its version is another one.
fn begin<R, W>(reader: FrameReader<R>, writer: W, worker: ReplicaId, hello: &Hello, door: &Door)
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    tracing::debug!(worker = worker.0, host = hello.host, devices = ?hello.devices, "a worker has connected");
    if let Err(error) = check_version(hello) {
        let body = serde_json::json!({ "stage": "connecting", "error": error }).to_string();
        // Without a supervisor the server is going down.
        let _ = door.events.send(WorkerEvent::Message(worker, Kind::Failed, body.into()));
        return;
    }
    receiver::start(reader, writer, worker, door.clock, door.events.clone());
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
        // What would be reported of them came before what is reported of the next worker.
        let _next = dial(&registry.expect(ReplicaId(3)).unwrap()).await.unwrap().unwrap();
        assert!(matches!(reported.recv().await, Some(WorkerEvent::Connected(ReplicaId(3), _))));
    }

    #[tokio::test]
    async fn a_connection_that_sends_nothing_is_told_from_one_that_is_refused() {
        let (events, _reported) = mpsc::unbounded_channel();
        let door =
            Door { expected: Arc::default(), next: Arc::default(), tokens: None, clock: Clock::default(), events };
        assert_eq!(admit(&b""[..], tokio::io::sink(), &door).await, Err(Refused::Silent));
        let other = small_frame(Kind::Pong, b"").concat();
        let refused = admit(std::io::Cursor::new(other), tokio::io::sink(), &door).await;
        assert_eq!(refused, Err(Refused::For("it sent no hello: the first frame is not a hello".into())));
    }

    #[tokio::test]
    async fn a_worker_of_another_machine_connects_over_tls() {
        let folder = tempfile::tempdir().unwrap();
        let (events, mut reported) = mpsc::unbounded_channel();
        let clock = Clock::default();
        let mut registry = Registry::listen(&folder.path().join("w"), clock, events).unwrap();
        let secret = jitney_channel::Secret::new(&"a".repeat(32)).unwrap();
        let ports = WorkerPorts::listen(&["127.0.0.1:0"], &secret).await.unwrap();
        let address = ports.ports[0].address().unwrap().to_string();
        registry.open(ports, "");
        let token = registry.expect_remote(ReplicaId(1), "w1");
        let dial = |address: String, token: String| {
            let identity = Identity { id: "w1".into(), token, ..Identity::default() };
            tokio::task::spawn_blocking(move || WorkerLink::connect(&address, identity, || {}))
        };
        let ends = |stranger: WorkerLink| async {
            let received = tokio::task::spawn_blocking(move || stranger.receive()).await.unwrap();
            assert!(matches!(received, Control::Shutdown));
        };
        let local = registry.expect(ReplicaId(2)).unwrap();
        for wrong in ["a wrong token".into(), local, registry.next_token("w2")] {
            ends(dial(address.clone(), wrong).await.unwrap().unwrap()).await;
        }
        let worker = dial(address.clone(), token.clone()).await.unwrap().unwrap();
        let Some(WorkerEvent::Connected(ReplicaId(1), link)) = reported.recv().await else { panic!("no link") };
        let large = vec![b'x'; 1 << 20];
        link.assign(&large);
        let received = tokio::task::spawn_blocking(move || (worker.receive(), worker)).await.unwrap();
        assert_eq!(received.0, Control::Assign(large));
        received.1.control(Kind::Ready, b"{}").unwrap();
        assert!(matches!(reported.recv().await, Some(WorkerEvent::Message(ReplicaId(1), Kind::Ready, _))));
        ends(dial(address.clone(), token).await.unwrap().unwrap()).await;
        ends(dial(address.clone(), registry.next_token("w1")).await.unwrap().unwrap()).await;
        let bare = address.split('#').next().unwrap().to_owned();
        let error = dial(bare, String::new()).await.unwrap().unwrap_err();
        assert!(error.to_string().contains("#PIN"));
    }
}
