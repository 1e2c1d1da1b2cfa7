//! The server's end of the connections of programs. A program may call models and nothing else: it can never be a worker.

use super::frames::{self, Dial, Refused, Request, Welcome};
use super::life::{Life, Watched};
use crate::call::{Answer, Failure};
use crate::heavy::{self, COPIED};
use crate::http::{Listener, Stream, most_items};
use crate::item::values;
use crate::link::frame::{Frame, FrameReader, Kind, Segments, small_frame};
use crate::link::front::write_all;
use crate::site::Site;
use crate::spawn;
use jitney_core::outcome::Outcome;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

/// A program must say who it is within this.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// No first frame is longer.
const LONGEST_DIAL: usize = 4 << 10;
/// Programs at once, also those that have not said who they are yet: half of the descriptors that are kept beside those of
/// requests.
const CONNECTIONS: usize = 256;
/// Requests of one program that are under way, or whose answers it has not taken. It is told, and keeps others back: one
/// that does not is not read from, and so not answered when it asks whether the server lives.
const REQUESTS: u32 = 16_384;
/// A program that is silent for this long is taken for lost, with the machine or the network between: programs ask for a
/// sign of life every two seconds, and whoever is gone would keep his place for ever.
const SILENCE: Duration = Duration::from_secs(60);
/// After this a socket that cannot accept is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Lets programs in until told to stop, then finishes what they have asked for. The server's own workers are served for
/// longer: `predict` may call other models, so there is no end to that before the requests at all doors have ended.
/// `others` are the doors beside this one. Returns when all are gone.
pub async fn serve(
    listeners: Vec<Listener>,
    site: Arc<Site>,
    stop: watch::Receiver<bool>,
    others: impl Future<Output = ()>,
) {
    admit(listeners, site, stop, others, is_of_a_worker).await;
}

/// Told by the kernel, and only of sockets on this machine.
fn is_of_a_worker(stream: &Stream) -> bool {
    let Stream::Unix(stream) = stream else { return false };
    let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
    process.is_some_and(spawn::belongs_to_a_worker)
}

async fn admit(
    listeners: Vec<Listener>,
    site: Arc<Site>,
    stop: watch::Receiver<bool>,
    others: impl Future<Output = ()>,
    is_of_a_worker: fn(&Stream) -> bool,
) {
    let (end, ends) = watch::channel(false);
    let [strangers, workers] = [stop, ends].map(Party::new);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut doors = JoinSet::new();
    for listener in listeners {
        let (site, places, strangers, workers) = (site.clone(), places.clone(), strangers.clone(), workers.clone());
        // Over TCP no worker can be told from a stranger: that door closes with the stop.
        let closes = (!listener.is_unix()).then(|| strangers.stop.clone());
        let open = async move {
            // Who comes when all places are taken waits in the kernel's queue. The semaphore is never closed.
            while let Ok(place) = places.clone().acquire_owned().await {
                match listener.accept().await {
                    Ok(stream) => {
                        let party = if is_of_a_worker(&stream) { &workers } else { &strangers };
                        party.receive(stream, site.clone(), place);
                    }
                    Err(error) => {
                        tracing::debug!(%error, "cannot accept a program; trying again");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        doors.spawn(async move {
            match closes {
                Some(mut stop) => tokio::select! { () = open => {} _ = stop.wait_for(|stop| *stop) => {} },
                None => open.await,
            }
        });
    }
    tokio::join!(strangers.gone(), others);
    end.send_replace(true);
    doors.shutdown().await;
    workers.gone().await;
}

/// Connections that are told to stop together.
#[derive(Clone)]
struct Party {
    connections: Arc<Mutex<JoinSet<()>>>,
    stop: watch::Receiver<bool>,
}

impl Party {
    fn new(stop: watch::Receiver<bool>) -> Party {
        Party { connections: Arc::default(), stop }
    }

    /// Serves one more. Who comes after the stop finds the connection ended, and dials again.
    fn receive(&self, stream: Stream, site: Arc<Site>, place: OwnedSemaphorePermit) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at under the lock: whoever is let in is there when `gone` takes them all.
        if *self.stop.borrow() {
            return;
        }
        while connections.try_join_next().is_some() {}
        let receiving = receive(stream, site, self.stop.clone());
        connections.spawn(async move {
            let _place = place;
            receiving.await;
        });
    }

    /// Waits until it is told to stop and everybody has left.
    async fn gone(&self) {
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
        let mut connections = std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        while connections.join_next().await.is_some() {}
    }
}

async fn receive(stream: Stream, site: Arc<Site>, stop: watch::Receiver<bool>) {
    let ended = match stream {
        Stream::Unix(stream) => {
            crate::link::frame::widen(&stream);
            let (reader, writer) = stream.into_split();
            Connection::run(reader, writer, site, stop).await
        }
        Stream::Tcp(stream) => {
            let (reader, writer) = stream.into_split();
            Connection::run(reader, writer, site, stop).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "the connection of a program broke");
    }
}

/// The next frame, unless there is no sign of life for too long.
async fn next<R: AsyncRead + Unpin>(
    reader: &mut FrameReader<R>,
    most: usize,
    life: &Life,
) -> io::Result<Option<Frame>> {
    // Polled to its end: what it has read of a frame would be lost with it.
    let mut next = pin!(reader.next_within(most));
    loop {
        // It may have said much while this server did not read: a full second is for that.
        let left = SILENCE.saturating_sub(life.silence()).max(Duration::from_secs(1));
        match tokio::time::timeout(left, &mut next).await {
            Ok(frame) => return frame,
            Err(_) if life.silence() >= SILENCE => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => {}
        }
    }
}

/// One program.
struct Connection {
    site: Arc<Site>,
    outgoing: mpsc::UnboundedSender<Segments>,
    under_way: Arc<Mutex<FxHashMap<u64, AbortHandle>>>,
    places: Arc<Semaphore>,
    pong: Arc<Semaphore>,
}

impl Connection {
    async fn run<R, W>(reader: R, writer: W, site: Arc<Site>, mut stop: watch::Receiver<bool>) -> io::Result<()>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (outgoing, queue) = mpsc::unbounded_channel();
        let life = Life::new();
        let mut writing = tokio::spawn(write_all(Watched::new(writer, &life), queue));
        let mut reader = FrameReader::new(Watched::new(reader, &life));
        let places = Arc::new(Semaphore::new(REQUESTS as usize));
        let pong = Arc::new(Semaphore::new(1));
        let mut connection = Connection { site, outgoing, under_way: Arc::default(), places: places.clone(), pong };
        let result = tokio::select! {
            result = connection.answer_all(&mut reader, &life, &mut stop) => result,
            // The program does not take what it is told.
            _ = &mut writing => Err(io::ErrorKind::BrokenPipe.into()),
        };
        let leaves_in_order = result.as_ref().is_ok_and(|&in_order| in_order);
        if leaves_in_order {
            // What it has asked for is finished and written.
            let _ = places.acquire_many(REQUESTS).await;
            drop(connection);
            let _ = writing.await;
        } else {
            connection.under_way.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(AbortHandle::abort);
            // It may wait for ever for one who takes nothing, with all that is meant for him.
            writing.abort();
        }
        result.map(drop)
    }

    /// Reads until the program leaves (false) or the server stops (true).
    async fn answer_all<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut FrameReader<R>,
        life: &Life,
        stop: &mut watch::Receiver<bool>,
    ) -> io::Result<bool> {
        // It may wait here for models that are still loading, and must not keep the server from ending meanwhile.
        let is_welcome = tokio::select! {
            is_welcome = self.welcome(reader) => is_welcome?,
            _ = stop.wait_for(|stop| *stop) => false,
        };
        if !is_welcome {
            return Ok(true);
        }
        let most =
            usize::try_from(self.site.options.max_body_bytes).unwrap_or(usize::MAX).saturating_add(frames::TABLE);
        let max_items = most_items(&self.site);
        // Whoever waits for his last answers still wants to know whether the server lives, and may give up.
        let mut is_stopping = false;
        loop {
            let mut coming = pin!(next(reader, most, life));
            let frame = loop {
                tokio::select! {
                    frame = &mut coming => break frame?,
                    _ = stop.wait_for(|stop| *stop), if !is_stopping => is_stopping = true,
                    _ = self.places.acquire_many(REQUESTS), if is_stopping => return Ok(true),
                }
            };
            let Some(frame) = frame else { return Ok(false) };
            match frame.kind {
                Kind::Call if is_stopping => {
                    let Request { id, items, .. } = frames::read_call(&frame, max_items)?;
                    let failure = Failure::new(Outcome::Draining, "the server is shutting down; call another");
                    self.say(frames::answers(id, &vec![Answer::failed(failure); items.len()]));
                }
                Kind::Call => {
                    let permit = self.places.clone().acquire_owned().await.map_err(io::Error::other)?;
                    // Small values are copied.
                    let weight = frame.table.len() + frame.payload.len() / COPIED;
                    self.call(heavy::run(weight, || frames::read_call(&frame, max_items)).await?, permit)?;
                }
                Kind::Hangup => self.hang_up(&frame)?,
                // One at a time: whoever asks and does not listen is not told again and again.
                Kind::Ping => {
                    if let Ok(place) = self.pong.clone().try_acquire_owned() {
                        self.say(frames::until_written(small_frame(Kind::Pong, b""), place));
                    }
                }
                other => return Err(io::Error::other(format!("a program does not send {other:?}"))),
            }
        }
    }

    /// Hears who it is; false if it may not call.
    async fn welcome<R: AsyncRead + Unpin>(&mut self, reader: &mut FrameReader<R>) -> io::Result<bool> {
        let frame = tokio::time::timeout(DIAL_TIMEOUT, reader.next_within(LONGEST_DIAL)).await??;
        let frame = frame.ok_or(io::ErrorKind::UnexpectedEof)?;
        if frame.kind != Kind::Dial {
            return Err(io::Error::other("the first frame of a program says who it is"));
        }
        let dial: Dial = serde_json::from_slice(&frame.table)?;
        let keys = self.site.keys.as_ref();
        if keys.is_some_and(|keys| !dial.key.as_ref().is_some_and(|key| keys.allows(key.as_bytes()))) {
            let why = match dial.key {
                Some(_) => "the key (key=, or JITNEY_API_KEY) is none of this server's",
                None => "this server asks for a key: pass key=, or set JITNEY_API_KEY",
            };
            let why = why.to_owned();
            self.say_json(Kind::Refused, &Refused { why });
            return Ok(false);
        }
        // A program may come before the models are loaded; what it is told can be called.
        if !self.site.has_been_ready() {
            self.site.ready().await;
        }
        let deployments = self.site.deployments().into_iter().flatten();
        let deployments = deployments
            .map(|(name, deployment)| (name.clone(), serde_json::to_value(&*deployment.manifest).unwrap_or_default()));
        let max_body_bytes = self.site.options.max_body_bytes;
        let max_items = most_items(&self.site) as u64;
        let deployments = deployments.collect();
        self.say_json(Kind::Welcome, &Welcome { deployments, max_body_bytes, max_items, max_requests: REQUESTS });
        Ok(true)
    }

    fn call(&self, request: Request, permit: OwnedSemaphorePermit) -> io::Result<()> {
        let Request { id, deployment, items, terms } = request;
        let found = self.site.deployments().and_then(|all| all.get(&deployment)).cloned();
        let (outgoing, under_way) = (self.outgoing.clone(), self.under_way.clone());
        let Some(found) = found else {
            let failure = Failure::new(Outcome::NotFound, format!("there is no deployment {deployment}"));
            let refused = Answer::failed(failure);
            self.say(frames::until_written(frames::answers(id, &vec![refused; items.len()]), permit));
            return Ok(());
        };
        // Held, so that the task cannot remove itself before it is there.
        let mut tasks = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.contains_key(&id) {
            return Err(io::Error::other(format!("a program has given two requests the number {id}")));
        }
        let task = tokio::spawn(async move {
            let answers = values::run(&found, items, terms).await;
            under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            let _ = outgoing.send(frames::until_written(frames::answers(id, &answers), permit));
        });
        tasks.insert(id, task.abort_handle());
        Ok(())
    }

    fn hang_up(&self, frame: &Frame) -> io::Result<()> {
        let id = frame.table.as_ref().try_into().map_err(|_| io::Error::other("a request's id has 8 bytes"))?;
        let task = self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&u64::from_le_bytes(id));
        // Dropped with its task, the call cancels its items.
        task.iter().for_each(AbortHandle::abort);
        Ok(())
    }

    fn say(&self, segments: Segments) {
        // A program that is gone is noticed by who reads from it.
        let _ = self.outgoing.send(segments);
    }

    fn say_json(&self, kind: Kind, what: &impl Serialize) {
        self.say(small_frame(kind, &serde_json::to_vec(what).unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Chunks, Part, Tag};
    use crate::deployment::Inbound;
    use bytes::Bytes;
    use smallvec::smallvec;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn an_answer_has_its_place_until_it_was_written() {
        let places = Arc::new(Semaphore::new(1));
        let place = places.clone().acquire_owned().await.unwrap();
        let segments = frames::until_written(vec![Bytes::from_static(b"head"), Bytes::from_static(b"value")], place);
        assert_eq!((places.available_permits(), &segments.concat()[..]), (0, &b"headvalue"[..]));
        drop(segments);
        assert_eq!(places.available_permits(), 1);
    }

    #[tokio::test]
    async fn who_waits_for_models_does_not_keep_the_server_from_ending() {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(far);
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(Connection::run(reader, writer, Arc::new(Site::of_a_test(1000)), stopped));
        near.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await.unwrap();
        stop.send(true).unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(5), serving).await;
        assert!(ended.expect("it ends at once").unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_shows_no_sign_of_life_loses_its_place() {
        for is_alive in [false, true] {
            let (near, far) = tokio::io::duplex(1 << 16);
            let (reader, writer) = tokio::io::split(far);
            let (_stop, stopped) = watch::channel(false);
            let site = Arc::new(Site::of_a_test(1000));
            site.set_readiness(crate::site::Readiness { ready: true, ..Default::default() });
            let serving = tokio::spawn(Connection::run(reader, writer, site, stopped));
            let (_heard, mut near) = tokio::io::split(near);
            near.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await.unwrap();
            for _ in 0..3 {
                tokio::time::sleep(SILENCE / 2).await;
                if is_alive {
                    near.write_all(&small_frame(Kind::Ping, b"")[0]).await.unwrap();
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(serving.is_finished(), !is_alive);
            serving.abort();
        }
    }

    /// A server with a deployment `x` of texts, and where its items arrive.
    fn serving_x() -> (Arc<Site>, mpsc::UnboundedReceiver<Inbound>) {
        let site = Arc::new(Site::of_a_test(1000));
        let (inbound, engine) = mpsc::unbounded_channel();
        let text = serde_json::json!({ "kind": "text", "arrays": [], "schema": true });
        let manifest = crate::tensors::tests::manifest(text.clone(), text, serde_json::json!({}));
        let deployment = crate::deployment::Deployment::new(Arc::new(manifest), inbound, &site.telemetry);
        site.open([("x".to_owned(), deployment)].into());
        site.set_readiness(crate::site::Readiness { ready: true, ..Default::default() });
        (site, engine)
    }

    fn call_x(id: u64) -> Vec<u8> {
        let text = Part { tag: Tag::Text, tensor: None, data: Chunks::from(Bytes::from_static(b"text")) };
        frames::call(id, "x", vec![smallvec![text]], values::Terms::default()).concat()
    }

    #[tokio::test]
    async fn who_waits_for_the_last_answers_hears_that_the_server_lives() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(far);
        let (stop, stopped) = watch::channel(false);
        let (site, mut engine) = serving_x();
        let serving = tokio::spawn(Connection::run(reader, writer, site, stopped));
        let (heard, mut near) = tokio::io::split(near);
        let mut heard = FrameReader::new(heard);
        let mut next = async || heard.next().await.unwrap().unwrap();
        near.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await.unwrap();
        assert_eq!(next().await.kind, Kind::Welcome);
        near.write_all(&call_x(1)).await.unwrap();
        let Some(Inbound::Submit(_, reply)) = engine.recv().await else { panic!("no call") };
        stop.send(true).unwrap();
        near.write_all(&small_frame(Kind::Ping, b"")[0]).await.unwrap();
        assert_eq!(next().await.kind, Kind::Pong);
        near.write_all(&call_x(2)).await.unwrap();
        let (id, refused) = frames::read_answers(&next().await).unwrap();
        assert_eq!((id, refused[0].result.as_ref().unwrap_err().outcome), (2, Outcome::Draining));
        assert!(!serving.is_finished(), "the first call is still being computed");
        reply.send(Answer::failed(Failure::new(Outcome::ModelFailed, "done"))).unwrap();
        assert_eq!(frames::read_answers(&next().await).unwrap().0, 1);
        assert!(tokio::time::timeout(Duration::from_secs(5), serving).await.expect("it ends").unwrap().is_ok());
    }

    #[tokio::test]
    async fn who_asks_and_does_not_listen_is_not_told_again_and_again() {
        let (near, far) = tokio::io::duplex(1 << 10);
        let (reader, writer) = tokio::io::split(far);
        let (_stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(Connection::run(reader, writer, serving_x().0, stopped));
        let (heard, mut near) = tokio::io::split(near);
        near.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await.unwrap();
        for _ in 0..5_000 {
            near.write_all(&small_frame(Kind::Ping, b"")[0]).await.unwrap();
        }
        let mut heard = FrameReader::new(heard);
        let mut pongs = 0;
        while let Ok(frame) = tokio::time::timeout(Duration::from_millis(100), heard.next()).await {
            pongs += u32::from(frame.unwrap().unwrap().kind == Kind::Pong);
        }
        assert!((1..200).contains(&pongs), "{pongs}");
        serving.abort();
    }

    #[tokio::test]
    async fn one_number_is_one_request() {
        let (site, _engine) = serving_x();
        let name = "x".to_owned();
        let (outgoing, _queue) = mpsc::unbounded_channel();
        let places = Arc::new(Semaphore::new(2));
        let pong = Arc::new(Semaphore::new(1));
        let connection = Connection { site, outgoing, under_way: Arc::default(), places: places.clone(), pong };
        let call = |id| {
            let text = Part { tag: Tag::Text, tensor: None, data: Chunks::from(Bytes::from_static(b"text")) };
            let items = vec![smallvec![text]];
            let request = Request { id, deployment: name.clone(), items, terms: values::Terms::default() };
            connection.call(request, places.clone().try_acquire_owned().unwrap())
        };
        assert!(call(7).is_ok());
        assert!(call(7).unwrap_err().to_string().contains("two requests the number 7"));
    }

    #[tokio::test]
    async fn strangers_cannot_take_every_descriptor() {
        use tokio::io::AsyncReadExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listeners = crate::http::bind(&[format!("unix:{}", path.display())]).await.unwrap();
        let (stop, stopped) = watch::channel(false);
        let site = Arc::new(Site::of_a_test(1000));
        site.set_readiness(crate::site::Readiness { ready: true, ..Default::default() });
        let serving = tokio::spawn(serve(listeners, site, stopped, std::future::ready(())));
        let dial = || tokio::net::UnixStream::connect(&path);
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS {
            silent.push(dial().await.unwrap());
        }
        let mut late = dial().await.unwrap();
        late.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await.unwrap();
        let mut welcome = [0; 4];
        assert!(tokio::time::timeout(Duration::from_millis(50), late.read_exact(&mut welcome)).await.is_err());
        silent.clear();
        late.read_exact(&mut welcome).await.unwrap();
        assert_eq!(welcome[3], Kind::Welcome as u8, "who waited is let in when others leave");
        stop.send(true).unwrap();
        serving.await.unwrap();
    }

    /// A program that asks for signs of life.
    struct Program(FrameReader<tokio::net::unix::OwnedReadHalf>, tokio::net::unix::OwnedWriteHalf);

    impl Program {
        async fn dial(path: &std::path::Path) -> Program {
            let (reader, mut writer) = tokio::net::UnixStream::connect(path).await.unwrap().into_split();
            // It may be turned away before it has said anything.
            let _ = writer.write_all(&small_frame(Kind::Dial, br#"{"key": null}"#)[0]).await;
            Program(FrameReader::new(reader), writer)
        }

        /// False if the server has ended the connection.
        async fn is_served(&mut self) -> bool {
            let _ = self.1.write_all(&small_frame(Kind::Ping, b"")[0]).await;
            loop {
                match tokio::time::timeout(Duration::from_secs(5), self.0.next()).await.expect("an answer or the end") {
                    Ok(Some(frame)) if frame.kind == Kind::Pong => return true,
                    Ok(Some(_)) => {}
                    _ => return false,
                }
            }
        }
    }

    #[tokio::test]
    async fn workers_are_served_until_the_other_doors_have_ended() {
        for is_worker in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("socket");
            let listeners = crate::http::bind(&[format!("unix:{}", path.display())]).await.unwrap();
            let (stop, stopped) = watch::channel(false);
            let (last_request, answered) = tokio::sync::oneshot::channel::<()>();
            let site = Arc::new(Site::of_a_test(1000));
            site.set_readiness(crate::site::Readiness { ready: true, ..Default::default() });
            let others = async move { drop(answered.await) };
            let of_workers: fn(&Stream) -> bool = if is_worker { |_| true } else { |_| false };
            let serving = tokio::spawn(admit(listeners, site, stopped, others, of_workers));
            let mut program = Program::dial(&path).await;
            assert!(program.is_served().await);
            stop.send(true).unwrap();
            let mut late = Program::dial(&path).await;
            assert_eq!((program.is_served().await, late.is_served().await), (is_worker, is_worker));
            assert!(!serving.is_finished());
            drop(last_request);
            tokio::time::timeout(Duration::from_secs(5), serving).await.expect("it ends").unwrap();
            assert!(!program.is_served().await && !late.is_served().await);
        }
    }
}
