//! `GET /live/events`: the last five minutes, and then what the server does, once a second, as server-sent events.
//!
//! ```text
//! event: history
//! data: {"taken": 812, "deployments": {"NAME": {"answered": [...], "p50_ms": [...], ...}}}
//!
//! event: snapshot
//! data: {"at_ms": ..., "taken": 812, "server": {...}, "deployments": [{"name": "NAME", "sentence": ...}]}
//! ```

use crate::engine::server_state::ServerState;
use crate::engine::server_state::live::hub::{MOST_WATCHERS, WatcherEvents};
use crate::protocols::native::live::snapshot;
use crate::protocols::native::pages;
use crate::protocols::reply::payload::{BrokenOff, Reply, ReplyBody};
use crate::protocols::reply::problem::Problem;
use bytes::Bytes;
use http_body::{Body, Frame};
use jitney_core::tables::outcome::Outcome;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The events of one watcher.
struct Watching {
    first: VecDeque<Bytes>,
    events: WatcherEvents,
}

impl Body for Watching {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if let Some(event) = self.first.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(event))));
        }
        let event = ready!(self.events.poll_recv(cx));
        Poll::Ready(event.map(|event| Ok(Frame::data(event))))
    }
}

/// `GET /live/events`
pub(crate) async fn events(state: &ServerState) -> Result<Reply, Problem> {
    let Some(events) = state.live.watch() else {
        let detail = format!(
            "{MOST_WATCHERS} pages or programs watch this server already, as many as may; close one of them and try again"
        );
        return Err(Problem::new(Outcome::QueueFull, detail));
    };
    let now = snapshot::newest(state).await;
    let first = VecDeque::from([state.live.history(), now]);
    let mut reply = pages::reply("text/event-stream", "");
    // A proxy would hold events back until it has many.
    reply.headers_mut().insert("x-accel-buffering", hyper::header::HeaderValue::from_static("no"));
    *reply.body_mut() = ReplyBody::stream(Box::pin(Watching { first, events }));
    Ok(reply)
}
