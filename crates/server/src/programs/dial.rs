//! A program's end of its connection to a server: what is in flight, and dialling again with back-off.

use super::frames::{self, Dial, Refused, Welcome};
use super::life::{Life, Watched};
use crate::call::{Answer, Failure};
use crate::embed::{Answering, Doing};
use crate::host::Fatal;
use crate::item::values::{Parts, Terms};
use crate::link::frame::{Frame, FrameReader, Kind, Segments, small_frame};
use crate::link::front::write_all;
use bytes::Bytes;
use jitney_core::outcome::Outcome;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};

/// How long until a server is dialled again, at first and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// A server must say what it serves within this; it may still be loading models.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(600);
/// A host that says nothing at all is dialled again after this, and not when the kernel gives up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that lives answers a call at its deadline. One that is later than this is not waited for.
const LATE: Duration = Duration::from_secs(1);
/// How often calls are looked through for such.
const LOOK: Duration = Duration::from_millis(500);
/// How often a server is asked for a sign of life.
const PING_EVERY: Duration = Duration::from_secs(2);
/// A server that is silent for this long is taken for lost.
const SILENCE: Duration = Duration::from_secs(10);

/// Where and as whom to dial.
#[derive(Clone)]
pub struct Address {
    /// `unix:PATH` or `tcp:HOST:PORT`.
    pub place: String,
    /// If the server asks for one.
    pub key: Option<String>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Where this program stands with its server.
#[derive(Clone, Debug)]
enum Standing {
    Dialling(String),
    /// What it serves.
    Connected(Arc<Welcome>),
    /// It will not let this program in.
    Refused(String),
}

#[derive(Debug)]
struct Shared {
    address: Address,
    standing: watch::Sender<Standing>,
    flying: Mutex<Flying>,
    next: AtomicU64,
    /// What was served when the first connection was made: this program's models are made of it.
    first: OnceLock<Arc<Welcome>>,
}

/// The connection that there is.
#[derive(Debug)]
struct Line {
    outgoing: mpsc::UnboundedSender<Segments>,
    /// One for each request that the server takes at once: it would not even hear pings while it has more.
    places: Arc<Semaphore>,
    /// Deployments that take or return something else than at first.
    changed: FxHashSet<String>,
}

#[derive(Debug, Default)]
struct Flying {
    /// `None` while there is no connection.
    line: Option<Line>,
    requests: FxHashMap<u64, Waiting>,
}

/// A call that the server has, or that is on its way there.
#[derive(Debug)]
struct Waiting {
    reply: oneshot::Sender<Vec<Answer>>,
    items: usize,
    /// When it is not waited for any longer; `None` if the deployment decides.
    end: Option<Instant>,
}

impl Shared {
    fn flying(&self) -> MutexGuard<'_, Flying> {
        self.flying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place among the requests of the connection; `None` if that is lost.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        let places = self.flying().line.as_ref()?.places.clone();
        places.acquire_owned().await.ok()
    }

    /// All that is in flight is lost, and whoever waits for a place.
    fn lose(&self) {
        let lost = std::mem::take(&mut *self.flying());
        lost.line.iter().for_each(|line| line.places.close());
    }

    /// Calls whose deadline has passed though the server has not said so: it may be stopped, or out of reach.
    fn expire(&self) {
        let now = Instant::now();
        let mut flying = self.flying();
        let Flying { line, requests } = &mut *flying;
        for (id, waiting) in requests.extract_if(|_, waiting| waiting.end.is_some_and(|end| end < now)) {
            let detail = format!("its time was over, and the server at {} has not answered", self.address.place);
            let failure = Failure::new(Outcome::DeadlineExceeded, detail);
            // Nobody may wait any more.
            let _ = waiting.reply.send(vec![Answer::failed(failure); waiting.items]);
            if let Some(line) = line {
                let _ = line.outgoing.send(small_frame(Kind::Hangup, &id.to_le_bytes()));
            }
        }
    }

    fn lost(&self) -> Failure {
        let why = match &*self.standing.borrow() {
            Standing::Dialling(why) | Standing::Refused(why) => format!(": {why}"),
            Standing::Connected(_) => String::new(),
        };
        Failure::new(Outcome::Disconnected, format!("the server at {} is not reached{why}", self.address.place))
    }
}

/// The way in to one deployment of the server.
#[derive(Clone, Debug)]
pub struct Entrance {
    deployment: Arc<str>,
    shared: Arc<Shared>,
}

impl Entrance {
    /// Runs the items of one request: an answer each, in order.
    pub fn call(&self, items: Vec<Parts>, terms: Terms) -> Answering {
        let (shared, deployment) = (self.shared.clone(), self.deployment.clone());
        Box::pin(async move {
            let count = items.len();
            let failed = |failure: Failure| vec![Answer::failed(failure); count];
            let began = Instant::now();
            let Some(place) = shared.place().await.map(Arc::new) else { return failed(shared.lost()) };
            let timeout = terms.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            if timeout.is_some_and(|left| left.is_zero()) {
                let detail = "its time was over before the server had a place for it among the calls of this program";
                return failed(Failure::new(Outcome::DeadlineExceeded, detail));
            }
            let terms = Terms { timeout, ..terms };
            let bytes: usize = items.iter().flatten().map(|part| part.data.len()).sum();
            let id = shared.next.fetch_add(1, Ordering::Relaxed);
            let frame = frames::call(id, &deployment, items, terms);
            if let Some(failure) = too_large(&shared, count, bytes, frame.iter().map(Bytes::len).sum()) {
                return failed(failure);
            }
            // Who gives up before it has left has his place until then: large ones would pile up.
            let frame = frames::until_written(frame, place.clone());
            let (reply, answers) = oneshot::channel();
            let sent = {
                let mut flying = shared.flying();
                if flying.line.as_ref().is_some_and(|line| line.changed.contains(&*deployment)) {
                    let place = &shared.address.place;
                    let detail = format!(
                        "the server at {place} was started again, and its {deployment} takes or returns something else than \
                         before: connect again"
                    );
                    return failed(Failure::new(Outcome::Disconnected, detail));
                }
                let sent = flying.line.as_ref().is_some_and(|line| line.outgoing.send(frame).is_ok());
                if sent {
                    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout)?.checked_add(LATE));
                    flying.requests.insert(id, Waiting { reply, items: count, end });
                }
                sent
            };
            if !sent {
                return failed(shared.lost());
            }
            let guard = HangUp { id, shared: &shared };
            let answers = answers.await;
            std::mem::forget(guard);
            match answers {
                Ok(answers) if answers.len() == count => answers,
                Ok(_) => failed(Failure::new(Outcome::Internal, "the server gave another number of answers")),
                Err(_) => failed(Failure::new(
                    Outcome::Disconnected,
                    format!("the server at {} was lost while it had this call", shared.address.place),
                )),
            }
        })
    }
}

/// Deployments of both servers whose values are of other kinds, as far as programs write and read them by it.
fn changed(first: &Welcome, now: &Welcome) -> FxHashSet<String> {
    let is_other = |known: &Value, found: &Value| {
        [("input", "kind"), ("input", "arrays"), ("output", "kind"), ("output", "arrays")]
            .iter()
            .any(|(side, part)| known[side][part] != found[side][part])
    };
    let both = now.deployments.iter().filter_map(|(name, found)| Some((name, first.deployments.get(name)?, found)));
    both.filter(|(_, known, found)| is_other(known, found)).map(|(name, ..)| name.clone()).collect()
}

/// What would end the connection, and so all calls that are in flight on it. `bytes` are those of the items, `framed` those
/// that are sent.
fn too_large(shared: &Shared, items: usize, bytes: usize, framed: usize) -> Option<Failure> {
    let standing = shared.standing.borrow();
    let Standing::Connected(welcome) = &*standing else { return None };
    let Welcome { max_body_bytes, max_items, .. } = **welcome;
    let detail = if items as u64 > max_items {
        format!("the request has {items} items, the server takes {max_items} at once; send the others in another")
    } else if bytes as u64 > max_body_bytes || framed as u64 > max_body_bytes.saturating_add(frames::TABLE as u64) {
        format!("the items have {bytes} bytes, the server takes {max_body_bytes} (max_body_bytes)")
    } else {
        return None;
    };
    Some(Failure::new(Outcome::TooLarge, detail))
}

/// Tells the server that nobody waits any more.
struct HangUp<'a> {
    id: u64,
    shared: &'a Shared,
}

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        let mut flying = self.shared.flying();
        if flying.requests.remove(&self.id).is_some()
            && let Some(line) = &flying.line
        {
            let _ = line.outgoing.send(small_frame(Kind::Hangup, &self.id.to_le_bytes()));
        }
    }
}

/// A connection to a server that is dialled again when it is lost.
#[derive(Debug)]
pub struct Remote {
    shared: Arc<Shared>,
    runtime: Mutex<Option<Runtime>>,
    process: u32,
}

impl Remote {
    /// Begins to dial.
    pub fn dial(address: Address) -> io::Result<Remote> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("jitney-dial")
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared {
            address,
            standing: watch::Sender::new(Standing::Dialling("nothing has answered yet".into())),
            flying: Mutex::default(),
            next: AtomicU64::new(1),
            first: OnceLock::new(),
        });
        runtime.spawn(stay_connected(shared.clone()));
        Ok(Remote { shared, runtime: Mutex::new(Some(runtime)), process: std::process::id() })
    }

    /// Waits for a connection, but not longer than this.
    pub fn ready(&self, within: Duration) -> Doing {
        let shared = self.shared.clone();
        let waiting = async move {
            let mut standing = shared.standing.subscribe();
            let settled = standing.wait_for(|standing| !matches!(standing, Standing::Dialling(_)));
            match tokio::time::timeout(within, settled).await {
                Ok(Ok(standing)) if matches!(*standing, Standing::Connected(_)) => Ok(()),
                _ => Err(Fatal::new(shared.lost().detail)),
            }
        };
        match &*self.runtime.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(runtime) => {
                let waiting = runtime.spawn(waiting);
                Box::pin(async move { waiting.await.unwrap_or_else(|error| Err(Fatal::new(error.to_string()))) })
            }
            None => Box::pin(std::future::ready(Err(Fatal::new("the connection was closed")))),
        }
    }

    /// The manifests of the server's deployments by name, as JSON; empty while there is no connection.
    pub fn manifests(&self) -> String {
        match &*self.shared.standing.borrow() {
            Standing::Connected(welcome) => serde_json::to_string(&welcome.deployments).unwrap_or_default(),
            _ => "{}".to_owned(),
        }
    }

    /// The way in to a deployment; that there is one is only seen by calling it.
    pub fn entrance(&self, name: &str) -> Entrance {
        Entrance { deployment: name.into(), shared: self.shared.clone() }
    }

    /// Whether this is a fork of the process that dialled.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Lets go of the connection. What is in flight fails, and its items are cancelled by the server.
    pub fn release(&self) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        match runtime {
            Some(runtime) if self.is_forked() => std::mem::forget(runtime),
            Some(runtime) => {
                self.shared.standing.send_replace(Standing::Dialling("the connection was closed".into()));
                self.shared.lose();
                runtime.shutdown_background();
            }
            None => {}
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.release();
    }
}

async fn stay_connected(shared: Arc<Shared>) {
    let mut pause = BACK_OFF.0;
    loop {
        let end = match connect(&shared).await {
            Ok(()) => {
                pause = BACK_OFF.0;
                "it ended the connection".to_owned()
            }
            Err(error) => error.to_string(),
        };
        let was_refused = matches!(*shared.standing.borrow(), Standing::Refused(_));
        shared.lose();
        if !was_refused {
            shared.standing.send_replace(Standing::Dialling(end));
        }
        // Programs that lost one server together must not come back together.
        tokio::time::sleep(pause.mul_f64(0.5 + f64::from(std::process::id() % 64) / 128.0)).await;
        pause = (pause * 2).min(BACK_OFF.1);
    }
}

async fn connect(shared: &Arc<Shared>) -> io::Result<()> {
    let place = &shared.address.place;
    if let Some(path) = place.strip_prefix("unix:") {
        let stream = UnixStream::connect(path).await?;
        crate::link::frame::widen(&stream);
        let (reader, writer) = stream.into_split();
        return talk(shared, reader, writer).await;
    }
    let host = place.strip_prefix("tcp:").ok_or_else(|| io::Error::other("a place is unix:PATH or tcp:HOST:PORT"))?;
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(host)).await??;
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    talk(shared, reader, writer).await
}

/// Speaks with the server until one of the two ends it.
async fn talk<R, W>(shared: &Arc<Shared>, reader: R, writer: W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (outgoing, queue) = mpsc::unbounded_channel();
    let life = Life::new();
    let writing = tokio::spawn(write_all(Watched::new(writer, &life), queue));
    let mut reader = FrameReader::new(Watched::new(reader, &life));
    let dial = serde_json::to_vec(&Dial { key: shared.address.key.clone() })?;
    let _ = outgoing.send(small_frame(Kind::Dial, &dial));
    let said = "it is there and serves nobody yet: its models are loading. A model that calls others of its own server \
                must connect when it is first asked, not while it loads";
    shared.standing.send_if_modified(|standing| match standing {
        Standing::Dialling(why) => {
            said.clone_into(why);
            true
        }
        _ => false,
    });
    let frame = tokio::time::timeout(WELCOME_TIMEOUT, reader.next()).await??;
    let frame = frame.ok_or(io::ErrorKind::UnexpectedEof)?;
    match frame.kind {
        Kind::Welcome => {
            let welcome: Welcome = serde_json::from_slice(&frame.table)?;
            let welcome = Arc::new(welcome);
            let places = Arc::new(Semaphore::new(welcome.max_requests as usize));
            let changed = changed(shared.first.get_or_init(|| welcome.clone()), &welcome);
            shared.flying().line = Some(Line { outgoing: outgoing.clone(), places, changed });
            shared.standing.send_replace(Standing::Connected(welcome));
        }
        Kind::Refused => {
            let refused: Refused = serde_json::from_slice(&frame.table)?;
            shared.standing.send_replace(Standing::Refused(refused.why));
            // Not the end of a connection that worked: whoever is refused comes back later and later.
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        other => return Err(io::Error::other(format!("a server does not begin with {other:?}"))),
    }
    let result = listen(shared, &mut reader, &outgoing, &life).await;
    writing.abort();
    result
}

async fn listen<R: AsyncRead + Unpin>(
    shared: &Shared,
    reader: &mut FrameReader<R>,
    outgoing: &mpsc::UnboundedSender<Segments>,
    life: &Life,
) -> io::Result<()> {
    let mut ping = tokio::time::interval(PING_EVERY);
    // Whoever was stopped himself (Ctrl-Z, a frozen container) has heard nothing meanwhile, and asks first.
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked = Instant::now();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Polled to its end: what it has read of a frame would be lost with it.
        let next = reader.next();
        tokio::pin!(next);
        let frame = loop {
            tokio::select! {
                biased;
                frame = &mut next => break frame?,
                _ = ping.tick() => {
                    let was_away = std::mem::replace(&mut asked, Instant::now()).elapsed() > 2 * PING_EVERY;
                    if life.silence() > SILENCE && !was_away {
                        return Err(io::Error::other(format!("it has been silent for {} s", SILENCE.as_secs())));
                    }
                    let _ = outgoing.send(small_frame(Kind::Ping, b""));
                }
                // An answer may be on its way for long; then there are signs of it.
                _ = look.tick() => if life.silence() > LATE { shared.expire() },
            }
        };
        let Some(frame) = frame else { return Ok(()) };
        hear(shared, &frame)?;
    }
}

fn hear(shared: &Shared, frame: &Frame) -> io::Result<()> {
    match frame.kind {
        Kind::Pong => Ok(()),
        Kind::Answers => {
            let (id, answers) = frames::read_answers(frame)?;
            // Nobody may wait any more.
            let waiting = shared.flying().requests.remove(&id);
            if let Some(Waiting { reply, .. }) = waiting {
                let _ = reply.send(answers);
            }
            Ok(())
        }
        other => Err(io::Error::other(format!("a server does not send {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    fn shared() -> Arc<Shared> {
        Arc::new(Shared {
            address: Address { place: "unix:nowhere".into(), key: None },
            standing: watch::Sender::new(Standing::Dialling("not yet".into())),
            flying: Mutex::default(),
            next: AtomicU64::new(1),
            first: OnceLock::new(),
        })
    }

    #[tokio::test]
    async fn a_refusal_is_no_connection_that_worked() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        far.write_all(&small_frame(Kind::Refused, br#"{"why": "no key"}"#)[0]).await.unwrap();
        let (shared, (reader, writer)) = (shared(), tokio::io::split(near));
        assert!(talk(&shared, reader, writer).await.is_err(), "so the pause before the next dial grows");
        assert!(shared.lost().detail.ends_with("no key"));
    }

    #[test]
    fn what_would_end_the_connection_is_not_sent() {
        let shared = shared();
        let welcome = Welcome { deployments: [].into(), max_body_bytes: 1000, max_items: 10, max_requests: 1 };
        shared.standing.send_replace(Standing::Connected(Arc::new(welcome)));
        let told = |items, bytes, framed| too_large(&shared, items, bytes, framed).map(|failure| failure.detail);
        assert_eq!(told(10, 1000, 1400), None);
        assert!(told(1, 1001, 1400).unwrap().contains("max_body_bytes"));
        assert!(told(1, 900, 1001 + frames::TABLE).unwrap().contains("max_body_bytes"));
        assert!(told(11, 100, 400).unwrap().contains("11 items"));
    }

    #[test]
    fn a_server_that_came_back_as_another_is_known() {
        let welcome = |dtype: &str, kind: &str| {
            let known = serde_json::json!({
                "input": { "kind": "arrays", "arrays": [{ "name": "x", "dtype": dtype }], "schema": dtype },
                "output": { "kind": kind, "arrays": [] },
            });
            let deployments = [("a".to_owned(), known), (kind.to_owned(), Value::Null)].into();
            Welcome { deployments, max_body_bytes: 1, max_items: 1, max_requests: 1 }
        };
        let first = welcome("int32", "text");
        assert!(changed(&first, &first).is_empty());
        for other in [welcome("int64", "text"), welcome("int32", "any")] {
            assert_eq!(changed(&first, &other), FxHashSet::from_iter(["a".to_owned()]));
        }
    }

    fn welcome(max_requests: u32) -> Segments {
        let welcome = Welcome { deployments: [].into(), max_body_bytes: 1000, max_items: 10, max_requests };
        small_frame(Kind::Welcome, &serde_json::to_vec(&welcome).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_not_waited_for_when_its_server_has_stopped() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (shared, (reader, writer)) = (shared(), tokio::io::split(near));
        let (far_reader, mut far_writer) = tokio::io::split(far);
        far_writer.write_all(&welcome(1)[0]).await.unwrap();
        let talking = tokio::spawn({
            let shared = shared.clone();
            async move { talk(&shared, reader, writer).await }
        });
        shared.standing.subscribe().wait_for(|standing| matches!(standing, Standing::Connected(_))).await.unwrap();
        let entrance = Entrance { deployment: "x".into(), shared: shared.clone() };
        let (began, timeout) = (Instant::now(), Some(Duration::from_millis(50)));
        let answers = entrance.call(vec![Parts::new()], Terms { timeout, ..Terms::default() }).await;
        assert_eq!(answers[0].result.as_ref().unwrap_err().outcome, Outcome::DeadlineExceeded);
        assert!(began.elapsed() < Duration::from_secs(3), "sooner than the connection is given up");
        let mut frames = FrameReader::new(far_reader);
        while frames.next().await.unwrap().unwrap().kind != Kind::Hangup {}
        assert!(!talking.is_finished(), "it may still come back");
    }

    #[tokio::test]
    async fn no_more_calls_are_sent_than_the_server_takes() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (shared, (reader, writer)) = (shared(), tokio::io::split(near));
        let (far_reader, mut far_writer) = tokio::io::split(far);
        far_writer.write_all(&welcome(1)[0]).await.unwrap();
        let talking = tokio::spawn({
            let shared = shared.clone();
            async move { talk(&shared, reader, writer).await }
        });
        let mut frames = FrameReader::new(far_reader);
        assert_eq!(frames.next().await.unwrap().unwrap().kind, Kind::Dial);
        shared.standing.subscribe().wait_for(|standing| matches!(standing, Standing::Connected(_))).await.unwrap();
        let entrance = Entrance { deployment: "x".into(), shared: shared.clone() };
        let timeout = Some(Duration::from_millis(50));
        let [first, second, late] = [None, None, timeout]
            .map(|timeout| tokio::spawn(entrance.call(vec![Parts::new()], Terms { timeout, ..Terms::default() })));
        let mut call = async || loop {
            let frame = frames.next().await.unwrap().unwrap();
            if frame.kind == Kind::Call {
                return frames::read_call(&frame, 9).unwrap().id;
            }
        };
        let id = call().await;
        assert!(tokio::time::timeout(Duration::from_millis(100), call()).await.is_err(), "the second waits");
        let answered = [Answer::failed(Failure::new(Outcome::Internal, ""))];
        far_writer.write_all(&frames::answers(id, &answered).concat()).await.unwrap();
        assert_eq!(first.await.unwrap()[0].outcome(), Outcome::Internal);
        call().await;
        shared.lose();
        assert_eq!(second.await.unwrap()[0].outcome(), Outcome::Disconnected);
        assert!(matches!(late.await.unwrap()[0].outcome(), Outcome::Disconnected | Outcome::DeadlineExceeded));
        talking.abort();
    }

    /// What becomes of a program whose server sends one answer so slowly, or nothing at all.
    async fn end(piece_every: Option<Duration>) -> io::Result<()> {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let (shared, (reader, writer)) = (shared(), tokio::io::split(near));
        far.write_all(&welcome(10)[0]).await.unwrap();
        tokio::spawn(async move {
            let answer = frames::answers(1, &[]).concat();
            let Some(every) = piece_every else { return std::future::pending().await };
            for byte in answer {
                tokio::time::sleep(every).await;
                far.write_all(&[byte]).await.unwrap();
            }
        });
        talk(&shared, reader, writer).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_answer_is_a_sign_of_life_and_silence_is_none() {
        assert!(end(Some(SILENCE / 2)).await.is_ok(), "it ends when the server has said all");
        assert!(end(None).await.unwrap_err().to_string().contains("silent"));
    }
}
