//! `GET /live/events`: the last five minutes, and then what the server does, once a second, as server-sent events.
//!
//! ```text
//! event: history
//! data: {"taken": 812, "deployments": {"NAME": {"answered": [...], "p50_ms": [...], ...}}}
//!
//! event: snapshot
//! data: {"at_ms": ..., "taken": 812, "server": {...}, "deployments": [{"name": "NAME", "sentence": ...}]}
//!
//! event: replaced                                        the last one, if as many watch as may and a further one came
//! data: {"most_watchers": 16}
//! ```

use crate::base::keys::Keys;
use crate::engine::server_state::ServerState;
use crate::engine::server_state::live::hub::WatcherEvents;
use crate::protocols::native::live::snapshot;
use crate::protocols::native::pages;
use crate::protocols::reply::payload::{BrokenOff, Reply, ReplyBody};
use crate::protocols::request::api_key;
use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::header::HeaderMap;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The events of one watcher.
struct Watching {
    first: VecDeque<Bytes>,
    events: WatcherEvents,
    /// The keys of the server and what the request carried, if the server asks for a key.
    keys: Option<(Arc<Keys>, HeaderMap)>,
}

impl Watching {
    /// A key may be taken back while its stream goes on.
    fn may_go_on(&self) -> bool {
        self.keys.as_ref().is_none_or(|(keys, headers)| api_key::is_known(keys, headers))
    }
}

impl Body for Watching {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if let Some(event) = self.first.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(event))));
        }
        let event = ready!(self.events.poll_recv(cx)).filter(|_| self.may_go_on());
        Poll::Ready(event.map(|event| Ok(Frame::data(event))))
    }
}

/// `GET /live/events`
pub(crate) async fn events(state: &ServerState, headers: &HeaderMap) -> Reply {
    let events = state.live.watch();
    let keys = state.keys.clone().map(|keys| (keys, headers.clone()));
    let now = snapshot::newest(state).await;
    let first = VecDeque::from([state.live.history(), now]);
    let mut reply = pages::reply("text/event-stream", "");
    // A proxy would hold events back until it has many.
    reply.headers_mut().insert("x-accel-buffering", hyper::header::HeaderValue::from_static("no"));
    *reply.body_mut() = ReplyBody::stream(Box::pin(Watching { first, events, keys }));
    reply
}
