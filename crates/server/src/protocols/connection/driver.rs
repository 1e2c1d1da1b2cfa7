//! One connection from its first byte to its last: which protocol it speaks, how long it may be silent, how it ends.
//!
//! hyper's own header time-out also counts while a kept-alive connection is idle and costs a timer per request, so it is
//! off; the driver below keeps one lazy timer per connection for all of them.

mod streams;

use crate::base::clock;
use crate::base::self_wake::SelfWake;
use crate::engine::server_state::ServerState;
use crate::protocols::connection::driver::streams::Streams;
use crate::protocols::connection::least_rate::LeastRate;
use crate::protocols::connection::limits;
use crate::protocols::connection::limits::{GOAWAY_LINGER, LINGER, LINGER_MOST};
use crate::protocols::connection::services::Services;
use crate::protocols::connection::socket::{Activity, HttpVersion, Seen, Socket, Stream};
use crate::protocols::connection::tls::Tls;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use jitney_core::config::options::length;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// Says to all connections of one `serve` that no new request is wanted.
#[derive(Debug)]
pub(crate) struct Closing {
    /// Set before `signal`: a connection looks here at each turn, which is cheaper than asking the channel.
    pub(crate) flag: AtomicBool,
    pub(crate) signal: watch::Sender<bool>,
}

/// Serves one connection until it ends. `own_host` as `Services::of_connection` has it.
pub(crate) async fn run<S: Services>(
    stream: Stream,
    tls: Option<Tls>,
    state: Arc<ServerState>,
    services: S,
    own_host: Option<Arc<str>>,
    closing: Arc<Closing>,
) {
    let activity = Arc::new(Activity::new(state.ledger.connection().with_peer(stream.peer())));
    let limits = Limits::of(&state);
    let mut stop = closing.signal.subscribe();
    let opening = async {
        let mut socket = Socket::open(stream, tls, activity.clone()).await?;
        let protocol = socket.sniff().await?;
        std::io::Result::Ok(protocol.map(|protocol| (socket, protocol)))
    };
    let (socket, protocol) = tokio::select! {
        opened = timeout(limits.header, opening) => match opened {
            Ok(Ok(Some(opened))) => opened,
            _ => return,
        },
        _ = stop.wait_for(|stop| *stop) => return,
    };
    let io = TokioIo::new(socket);
    let service = services.of_connection(own_host, activity.clone());
    let driver = Driver::new(limits, activity, protocol);
    // The peer causes the errors here: it left, or it broke the protocol. Logging them would help no operator.
    let _ = match protocol {
        HttpVersion::Http1 => {
            let connection = Http1::<S>::Open(http1_builder().serve_connection(io, service));
            driver.drive(&closing, stop, Box::pin(connection)).await
        }
        HttpVersion::Http2 => {
            let builder = http2_builder(Streams(driver.activity.clone()));
            driver.drive(&closing, stop, Box::pin(Http2::<S>(builder.serve_connection(io, service)))).await
        }
    };
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        // The end of what a client sends is the end of its interest: its requests are cancelled.
        .half_close(false)
        .max_header_size(limits::H1_HEAD_BYTES)
        .max_buf_size(limits::H1_BUFFER_BYTES);
    builder
}

fn http2_builder(streams: Streams) -> http2::Builder<Streams> {
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits::H2_STREAMS)
        .max_pending_accept_reset_streams(limits::H2_PENDING_RESETS)
        .max_local_error_reset_streams(limits::H2_LOCAL_RESETS)
        .max_header_list_size(limits::H2_HEADER_LIST_BYTES)
        .max_frame_size(limits::H2_FRAME_BYTES)
        .initial_stream_window_size(limits::H2_STREAM_WINDOW)
        .initial_connection_window_size(limits::H2_CONNECTION_WINDOW)
        .max_send_buf_size(limits::H2_SEND_BUFFER_BYTES)
        .keep_alive_interval(limits::H2_PING_INTERVAL)
        .keep_alive_timeout(limits::H2_PING_TIMEOUT);
    builder
}

/// The two kinds of connection, as far as the driver cares.
trait Connection: Future<Output = hyper::Result<()>> {
    fn close_gracefully(self: Pin<&mut Self>);
}

/// An HTTP/1 connection that shuts its socket itself. After a request that offered an upgrade, accepted or not, hyper
/// does not shut the socket, and then the connection would not linger. Java's client sends such requests.
#[allow(clippy::large_enum_variant, reason = "it is boxed, and larger than what follows all its life")]
enum Http1<S: Services> {
    Open(http1::Connection<TokioIo<Socket>, S::Service>),
    Closing(Socket),
    Closed,
}

impl<S: Services> Future for Http1<S> {
    type Output = hyper::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Http1::Open(connection) = &mut *self {
            // It writes what is left, and shuts the socket unless an upgrade was offered. An error may be one that hyper has
            // answered; where it is the socket's, shutting it again costs nothing.
            let _ = ready!(Pin::new(connection).poll(cx));
            if let Http1::Open(connection) = std::mem::replace(&mut *self, Http1::Closed) {
                *self = Http1::Closing(connection.into_parts().io.into_inner());
            }
        }
        if let Http1::Closing(socket) = &mut *self {
            let _ = ready!(Pin::new(socket).poll_shutdown(cx));
            *self = Http1::Closed;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Services> Connection for Http1<S> {
    fn close_gracefully(mut self: Pin<&mut Self>) {
        if let Http1::Open(connection) = &mut *self {
            Pin::new(connection).graceful_shutdown();
        }
    }
}

struct Http2<S: Services>(http2::Connection<TokioIo<Socket>, S::Service, Streams>);

impl<S: Services> Future for Http2<S> {
    type Output = hyper::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<S: Services> Connection for Http2<S> {
    fn close_gracefully(mut self: Pin<&mut Self>) {
        Pin::new(&mut self.0).graceful_shutdown();
    }
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    header: Duration,
    idle: Duration,
    write: Duration,
}

impl Limits {
    fn of(state: &ServerState) -> Limits {
        let options = &state.options;
        Limits {
            header: length(options.header_timeout_s),
            idle: length(options.idle_timeout_s),
            write: length(options.body_timeout_s),
        }
    }
}

/// Watches one connection: since when it has been in the state that it is in, and how long it may stay there.
struct Driver {
    limits: Limits,
    activity: Arc<Activity>,
    protocol: HttpVersion,
    seen: Seen,
    /// When the last request ended, or when the head that is arriving began.
    waiting_since: Instant,
    /// Since when the peer has taken no byte.
    blocked_since: Instant,
    /// Since when the peer has taken none of the answers that are there; in HTTP/2 it can refuse them without refusing bytes.
    /// More of them do not set this back.
    replying_since: Instant,
    /// When the connection was asked to end.
    closing_since: Option<Instant>,
    /// Since when everything has been written, and at which rate the peer still sends.
    lingering: Option<(Instant, LeastRate)>,
}

impl Driver {
    fn new(limits: Limits, activity: Arc<Activity>, protocol: HttpVersion) -> Driver {
        let (now, seen) = (Instant::now(), activity.seen());
        Driver {
            limits,
            activity,
            protocol,
            seen,
            waiting_since: now,
            blocked_since: now,
            replying_since: now,
            closing_since: None,
            lingering: None,
        }
    }

    async fn drive<C: Connection>(
        mut self,
        closing: &Closing,
        mut stop: watch::Receiver<bool>,
        mut connection: Pin<Box<C>>,
    ) -> hyper::Result<()> {
        let mut told = pin!(stop.wait_for(|stop| *stop));
        // Polled once: its waker stays with the channel, and this task's waker never changes.
        let mut listening = false;
        let mut timer = pin!(sleep_until(self.deadline()));
        let mut turn = SelfWake::default();
        poll_fn(|cx| {
            if let Poll::Ready(result) = turn.poll(connection.as_mut(), cx) {
                return Poll::Ready(result);
            }
            if !listening {
                listening = true;
                let _ = told.as_mut().poll(cx);
            }
            if self.closing_since.is_none()
                && closing.flag.load(Ordering::Acquire)
                && let Poll::Ready(result) = self.close(connection.as_mut(), &mut turn, cx)
            {
                return Poll::Ready(result);
            }
            self.observe();
            if self.is_over() {
                return Poll::Ready(Ok(()));
            }
            if !self.overdue(timer.as_mut(), cx) {
                return Poll::Pending;
            }
            if !self.may_say_goodbye() {
                if self.has_untaken() {
                    self.activity.backlog.give_up();
                }
                return Poll::Ready(Ok(()));
            }
            if let Poll::Ready(result) = self.close(connection.as_mut(), &mut turn, cx) {
                return Poll::Ready(result);
            }
            self.observe();
            // Sets the timer anew.
            if self.overdue(timer.as_mut(), cx) { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Asks the connection to end, and gives it a turn to send that to the peer.
    fn close<C: Connection>(
        &mut self,
        mut connection: Pin<&mut C>,
        turn: &mut SelfWake,
        cx: &mut Context<'_>,
    ) -> Poll<hyper::Result<()>> {
        self.closing_since = Some(Instant::now());
        connection.as_mut().close_gracefully();
        turn.poll(connection, cx)
    }

    /// Takes note of what has changed since the last turn.
    fn observe(&mut self) {
        let now = self.activity.seen();
        if now == self.seen {
            return;
        }
        let instant = Instant::now();
        let before = std::mem::replace(&mut self.seen, now);
        let moved = now.active != before.active || now.begun != before.begun;
        if moved || now.head_started != before.head_started {
            self.waiting_since = instant;
        }
        if now.lingering {
            let (_, rate) = self.lingering.get_or_insert_with(|| (instant, LeastRate::new(LINGER)));
            rate.add(now.dropped - before.dropped);
        }
        if now.taken != before.taken || before.replying == 0 {
            self.replying_since = instant;
        }
        if now.write_blocked && (!before.write_blocked || now.written != before.written) {
            self.blocked_since = instant;
        }
    }

    /// Whether the connection was asked to end and nothing is left to wait for.
    fn is_over(&self) -> bool {
        let Seen { active, head_started, write_blocked, lingering, .. } = self.seen;
        let idle = !active && !head_started && !write_blocked && !lingering;
        self.closing_since.is_some() && idle && self.protocol == HttpVersion::Http1
    }

    /// Whether an idle HTTP/2 connection has reached its time-out. The server then sends GOAWAY: a client whose request
    /// crosses it learns that the server never saw the request, and can send it again by itself.
    fn may_say_goodbye(&self) -> bool {
        let Seen { write_blocked, replying, .. } = self.seen;
        self.protocol == HttpVersion::Http2 && self.closing_since.is_none() && !write_blocked && replying == 0
    }

    /// Whether there is something that the peer has not taken.
    fn has_untaken(&self) -> bool {
        self.seen.write_blocked || self.seen.replying > 0 || self.activity.backlog.end().is_some()
    }

    fn deadline(&self) -> Instant {
        let waiting = if let Some((since, rate)) = &self.lingering {
            // While the server ends, a lingering connection gets less time.
            let end = *since + if self.closing_since.is_some() { LINGER } else { LINGER_MOST };
            Some(end.min(rate.end()))
        } else if self.seen.active {
            // Nothing to fear from a client that waits for us; look again after a while.
            Instant::now().checked_add(self.limits.idle)
        } else if self.closing_since.is_some() && self.protocol == HttpVersion::Http2 {
            self.closing_since.and_then(|since| since.max(self.waiting_since).checked_add(GOAWAY_LINGER))
        } else if self.seen.head_started && self.protocol == HttpVersion::Http1 {
            self.waiting_since.checked_add(self.limits.header)
        } else {
            self.waiting_since.checked_add(self.limits.idle)
        };
        let blocked = if self.seen.write_blocked { self.blocked_since.checked_add(self.limits.write) } else { None };
        let replying = if self.seen.replying > 0 { self.replying_since.checked_add(self.limits.write) } else { None };
        [waiting, blocked, replying, self.activity.backlog.end()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_else(|| clock::after(Instant::now(), Duration::MAX))
    }

    /// Whether a time-out has passed. The timer may ring early, never late: deadlines mostly move away, and moving the
    /// timer along at every request would cost more than a look when it rings.
    fn overdue(&self, mut timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> bool {
        let deadline = self.deadline();
        if deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
        }
        while timer.as_mut().poll(cx).is_ready() {
            // Nothing ends a connection that only waits for us.
            let is_peers = !self.seen.active || self.seen.write_blocked || self.seen.replying > 0;
            let now = Instant::now();
            if now >= deadline && (is_peers || self.activity.backlog.end().is_some_and(|end| now >= end)) {
                return true;
            }
            timer.as_mut().reset(deadline.max(Instant::now() + Duration::from_millis(1)));
        }
        false
    }
}
