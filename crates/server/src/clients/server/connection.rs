//! One program: its requests are answered until it leaves.

use crate::base::clock::Clock;
use crate::base::offload;
use crate::base::offload::COPIED;
use crate::clients::answer_frames;
use crate::clients::call_frame;
use crate::clients::call_frame::{Request, SkippedRequest};
use crate::clients::greeting::{Dial, Refused, Welcome};
use crate::clients::part_frames;
use crate::clients::server::line;
use crate::clients::server::newcomers::Newcomer;
use crate::clients::server::session::Session;
use crate::clients::server::stream::StreamRequest;
use crate::clients::server::window::Window;
use crate::engine::program_values;
use crate::engine::room;
use crate::engine::room::most_items;
use crate::engine::server_state::ServerState;
use crate::link::frame::header::small_frame;
use crate::link::frame::kind::Kind;
use crate::link::frame::reader::{Frame, FrameReader, Grow, Skipped};
use crate::link::frame::writer::write_together;
use crate::link::liveness::{Life, Watched};
use crate::protocols::connection::backlog;
use crate::protocols::connection::least_rate::LeastRate;
use crate::values::answer::{Answer, Failure};
use jitney_core::tables::outcome::Outcome;
use serde::Serialize;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout_at};

/// Most requests of one program that are in flight, or whose answers it has not taken. The welcome says so, and the program
/// keeps others back. A program that does not is not read from, and so gets no pong.
const REQUESTS: u32 = 16_384;
/// A program that is silent for this long counts as gone, with its machine or the network between: programs ping every two
/// seconds, and one that has disconnected would keep its place without end.
const SILENCE: Duration = Duration::from_secs(60);

/// Reads the next frame. Fails if the other end sends nothing for too long, or sends a frame that has begun more slowly than a
/// body of HTTP may come, over windows of `window`. `grow` counts a large frame while it arrives.
async fn next<R: AsyncRead + Unpin>(
    reader: &mut FrameReader<R>,
    most: usize,
    grow: &mut Grow<'_>,
    life: &Life,
    window: Duration,
) -> io::Result<Option<Result<Frame, Skipped>>> {
    let mut rate = reader.has_begun().then(|| LeastRate::new(window));
    let mut received = life.received();
    // Polled to its end: what it has read of a frame would be lost with it.
    let mut next = pin!(reader.next_counted(most, grow));
    loop {
        // The program may have sent much while this server did not read: there is a full second for that.
        let left = SILENCE.saturating_sub(life.silence()).max(Duration::from_secs(1));
        let end = Instant::now() + left;
        let end = rate.as_ref().map_or(end, |rate| rate.end().min(end));
        // The frame, or nothing when bytes of it have come: then the ends have moved.
        let step = poll_fn(|cx| {
            if let Poll::Ready(frame) = next.as_mut().poll(cx) {
                return Poll::Ready(Some(frame));
            }
            let before = std::mem::replace(&mut received, life.received());
            if received == before {
                return Poll::Pending;
            }
            rate.get_or_insert_with(|| LeastRate::new(window)).add(received - before);
            Poll::Ready(None)
        });
        match timeout_at(end, step).await {
            Ok(Some(frame)) => return frame,
            Ok(None) => {}
            Err(_) if life.silence() >= SILENCE => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => {
                if let Some(rate) = rate.as_ref().filter(|rate| rate.end() <= Instant::now()) {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, format!("a frame {}", rate.describe())));
                }
            }
        }
    }
}

/// One program.
pub(crate) struct Connection {
    session: Arc<Session>,
    places: Arc<Semaphore>,
    pong: Arc<Semaphore>,
}

impl Connection {
    /// Serves the program until it leaves or the server stops.
    pub(super) async fn run<R, W>(
        reader: R,
        writer: W,
        state: Arc<ServerState>,
        mut stop: watch::Receiver<bool>,
        mut newcomer: Newcomer,
    ) -> io::Result<()>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (outgoing, queue) = mpsc::unbounded_channel();
        let life = Life::new(Clock::default());
        let mut reader = FrameReader::new(Watched::new(reader, &life));
        let places = Arc::new(Semaphore::new(REQUESTS as usize));
        // Answers of one batch leave together if there are several requests: each write costs two switches.
        let several = {
            let places = places.clone();
            move || places.available_permits() + 1 < REQUESTS as usize
        };
        let mut writing = tokio::spawn(write_together(Watched::new(writer, &life), queue, several));
        let session = Arc::new(Session::new(state, outgoing, newcomer.peer, newcomer.is_own));
        let late = session.backlog.clone();
        let mut connection = Connection { session, places: places.clone(), pong: Arc::new(Semaphore::new(1)) };
        let result = tokio::select! {
            result = connection.answer_all(&mut reader, &life, &mut stop, &mut newcomer) => result,
            // The program has closed its end.
            _ = &mut writing => Err(io::ErrorKind::BrokenPipe.into()),
            // The program asks and does not read: pings do not show that it takes its answers.
            () = backlog::overdue(&late) => Err(io::ErrorKind::TimedOut.into()),
        };
        let leaves_in_order = result.as_ref().is_ok_and(|&in_order| in_order);
        if leaves_in_order {
            // What it has asked for is finished and written.
            let _ = places.acquire_many(REQUESTS).await;
            drop(connection);
            let _ = writing.await;
        } else {
            connection.session.under_way.cancel_all();
            // The writer may wait without end for a program that takes nothing.
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
        newcomer: &mut Newcomer,
    ) -> io::Result<bool> {
        // It may wait here for models that are still loading, and must not keep the server from ending meanwhile.
        let is_welcome = tokio::select! {
            is_welcome = self.welcome(reader, newcomer) => is_welcome?,
            _ = stop.wait_for(|stop| *stop) => false,
        };
        if !is_welcome {
            return Ok(true);
        }
        let most = self.session.state.options.max_body_len().saturating_add(call_frame::TABLE);
        let max_items = most_items(&self.session.state.options);
        let limit = self.session.state.options.max_receiving_bytes;
        let window = self.session.state.options.body_timeout();
        // A program that waits for its last answers still pings, and may give up.
        let mut is_stopping = false;
        loop {
            // Until the frame has been decoded, or its bytes have been dropped.
            let mut received = Some(self.session.ledger.received.hold(0));
            let frame = {
                let mut grow = |bytes: usize| {
                    let has_room = received.as_mut().is_some_and(|received| received.grow(bytes, limit, limit).is_ok());
                    if !has_room {
                        received = None;
                    }
                    has_room
                };
                let mut coming = pin!(next(reader, most, &mut grow, life, window));
                loop {
                    tokio::select! {
                        frame = &mut coming => break frame?,
                        _ = stop.wait_for(|stop| *stop), if !is_stopping => is_stopping = true,
                        _ = self.places.acquire_many(REQUESTS), if is_stopping => return Ok(true),
                    }
                }
            };
            let frame = match frame {
                None => return Ok(false),
                Some(Ok(frame)) => frame,
                Some(Err(skipped)) => {
                    let permit = self.places.clone().acquire_owned().await.map_err(io::Error::other)?;
                    self.refuse_skipped(&skipped, max_items, permit)?;
                    continue;
                }
            };
            match frame.kind {
                Kind::Call if is_stopping => {
                    let Request { id, deployment, items, mut terms, .. } = call_frame::read_call(&frame, max_items)?;
                    let followers = line::begin(&self.session, &mut terms, &deployment, &items);
                    let failure = Failure::new(Outcome::Draining, "the server is shutting down; call another");
                    let deployment = self.session.state.deployment(&deployment);
                    drop(self.session.state.counts(deployment.as_deref()).refuse(failure.outcome));
                    let refused = vec![Answer::failed(failure); items.len()];
                    followers.end(&refused);
                    self.session.send(answer_frames::answers(id, &refused));
                }
                Kind::Call => {
                    let permit = self.places.clone().acquire_owned().await.map_err(io::Error::other)?;
                    // Small values are copied.
                    let weight = frame.table.len() + frame.payload.len() / COPIED;
                    self.call(offload::run(weight, || call_frame::read_call(&frame, max_items)).await?, permit)?;
                }
                Kind::Hangup => self.hang_up(&frame)?,
                Kind::PartsTaken => {
                    let (id, bytes) = part_frames::read_taken(&frame.table)?;
                    self.session.under_way.taken(id, bytes);
                }
                // One pong at a time: a program that pings and does not read gets no queue of them.
                Kind::Ping => {
                    if let Ok(place) = self.pong.clone().try_acquire_owned() {
                        self.session.send(answer_frames::until_written(small_frame(Kind::Pong, b""), place));
                    }
                }
                other => return Err(io::Error::other(format!("a program does not send {other:?}"))),
            }
        }
    }

    /// Reads the program's first frame and answers it; false if the program may not call.
    async fn welcome<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut FrameReader<R>,
        newcomer: &mut Newcomer,
    ) -> io::Result<bool> {
        let frame = newcomer.first_frame(reader).await?;
        if frame.kind != Kind::Dial {
            return Err(io::Error::other("the first frame of a program says who it is"));
        }
        let dial: Dial = serde_json::from_slice(&frame.table)?;
        let keys = self.session.state.keys.as_ref();
        if keys.is_some_and(|keys| !dial.key.as_ref().is_some_and(|key| keys.allows(key.as_bytes()))) {
            let why = match dial.key {
                Some(_) => "the key (key=, or JITNEY_CLIENT_KEY) is none of this server's",
                None => "this server asks for a key: pass key=, or set JITNEY_CLIENT_KEY",
            };
            let why = why.to_owned();
            self.send_json(Kind::Refused, &Refused { why, is_temporary: false });
            return Ok(false);
        }
        if !newcomer.take_place() {
            let why = "it serves as many programs as it can; this one dials again".to_owned();
            self.send_json(Kind::Refused, &Refused { why, is_temporary: true });
            return Ok(false);
        }
        // A program may dial before the models are loaded; its welcome waits until they can be called.
        if !self.session.state.has_been_ready() {
            self.session.state.ready().await;
        }
        let deployments = self.session.state.deployments().into_iter().map(|deployment| {
            let manifest = &*deployment.manifest;
            (manifest.name.clone(), serde_json::to_value(manifest).unwrap_or_default())
        });
        let max_body_bytes = self.session.state.options.max_body_bytes;
        let max_items = most_items(&self.session.state.options) as u64;
        let deployments = deployments.collect();
        self.send_json(Kind::Welcome, &Welcome { deployments, max_body_bytes, max_items, max_requests: REQUESTS });
        Ok(true)
    }

    /// Refuses a request whose frame found no room.
    fn refuse_skipped(&self, skipped: &Skipped, max_items: usize, permit: OwnedSemaphorePermit) -> io::Result<()> {
        if skipped.kind != Kind::Call {
            return Err(io::Error::other(format!("a program does not send a large {:?}", skipped.kind)));
        }
        let SkippedRequest { id, deployment, items } = call_frame::read_skipped(&skipped.table, max_items)?;
        let failure = room::receiving_is_full(self.session.state.options.max_receiving_bytes);
        let deployment = self.session.state.deployment(&deployment);
        drop(self.session.state.counts(deployment.as_deref()).refuse(failure.outcome));
        self.session.send_answers(answer_frames::answers(id, &vec![Answer::failed(failure); items]), Some(permit));
        Ok(())
    }

    fn call(&self, request: Request, permit: OwnedSemaphorePermit) -> io::Result<()> {
        let Request { id, deployment, mut items, mut terms, streams, bytes } = request;
        let session = self.session.clone();
        let followers = line::begin(&session, &mut terms, &deployment, &items);
        let Some(found) = session.state.deployment(&deployment) else {
            let failure = Failure::new(Outcome::NotFound, format!("there is no deployment {deployment}"));
            drop(session.state.unknown.refuse(failure.outcome));
            let refused = vec![Answer::failed(failure); items.len()];
            followers.end(&refused);
            session.send(answer_frames::until_written(answer_frames::answers(id, &refused), permit));
            return Ok(());
        };
        let under_way = &self.session.under_way;
        if let Some(item) = items.pop_if(|_| streams) {
            let window = Arc::new(Window::default());
            let is_new = under_way.begin(id, 1, Some(window.clone()), |key| {
                let deployment = found;
                let request = StreamRequest { id, key, deployment, terms, window, followers, place: permit, session };
                tokio::spawn(request.run(item, bytes)).abort_handle()
            });
            return once(id, is_new);
        }
        let is_new = under_way.begin(id, items.len(), None, |key| {
            let task = tokio::spawn(async move {
                let (request_id, reader) = (terms.id.clone(), (&session.ledger, &session.state.options));
                let mut answers = program_values::run_remote(&found, items, terms, bytes, reader).await;
                session.present(&request_id, &found, &mut answers);
                followers.end(&answers);
                if session.under_way.end(key) {
                    session.send_answers(answer_frames::answers(id, &answers), Some(permit));
                }
            });
            task.abort_handle()
        });
        once(id, is_new)
    }

    fn hang_up(&self, frame: &Frame) -> io::Result<()> {
        let id = frame.table.as_ref().try_into().map_err(|_| io::Error::other("a request's id has 8 bytes"))?;
        self.session.under_way.cancel(u64::from_le_bytes(id));
        Ok(())
    }

    fn send_json(&self, kind: Kind, what: &impl Serialize) {
        self.session.send(small_frame(kind, &serde_json::to_vec(what).unwrap_or_default()));
    }
}

fn once(id: u64, is_new: bool) -> io::Result<()> {
    if is_new { Ok(()) } else { Err(io::Error::other(format!("a program has given two requests the number {id}"))) }
}

#[cfg(test)]
mod tests;
