//! The body of an answer: one piece of known length, or a stream that ends with trailers.

pub(crate) mod span;

use crate::base::access_log::line::Ended;
use crate::engine::deployment::ticket::Ticket;
use crate::engine::server_state::ServerState;
use crate::protocols::connection::backlog;
use crate::protocols::connection::backlog::ResponseBacklog;
use crate::protocols::connection::socket::{Active, Activity};
use crate::protocols::reply::payload::span::Followers;
use crate::values::answer::Timing;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::Response;
use jitney_core::tables::outcome::Outcome;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A failed answer whose form cannot say that it failed. Its body has no end: HTTP/1.1 closes the connection before the last
/// chunk, and HTTP/2 resets the stream.
#[derive(Debug, thiserror::Error)]
#[error("the answer failed, and its media type cannot say that")]
pub(crate) struct BrokenOff;

/// What a stream of answers is. Most fail inside their protocol, and never as a stream.
pub(crate) type ReplyStream = Pin<Box<dyn Body<Data = Bytes, Error = BrokenOff> + Send>>;

/// What every route gives.
pub(crate) type Reply = Response<ReplyBody>;

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct ReplyBody {
    content: Content,
    /// A stream that is one message, all of which is here. Its end leaves with it.
    is_message: bool,
    /// A request is active until its answer has been handed over.
    active: Option<Active>,
    /// Counts the request when the answer has been handed over, or dropped.
    ticket: Option<Ticket>,
    /// These end when the answer has been handed over, or dropped.
    followers: Followers,
}

enum Content {
    Whole(Option<Bytes>),
    /// With an ending it is the answer to one item.
    Stream(ReplyStream, Option<Counting>, Option<Ending>),
}

/// Where a stream leaves the ticket of its request when it ends. The body that sends the stream takes it from there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending(Arc<Mutex<EndingState>>);

#[derive(Debug, Default)]
struct EndingState {
    ticket: Option<Ticket>,
    is_given_up: bool,
    /// Where the time until the first part went.
    first_part: Option<Timing>,
}

impl Ending {
    fn lock(&self) -> MutexGuard<'_, EndingState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request has ended.
    pub(crate) fn set(&self, ticket: Ticket) {
        self.lock().ticket = Some(ticket);
    }

    /// Where the time until the first part went, if it has come.
    pub(crate) fn set_first_part(&self, timing: Option<Timing>) {
        self.lock().first_part = timing;
    }

    /// The answer ends because its client did not take what there was.
    pub(crate) fn give_up(&self) {
        self.lock().is_given_up = true;
    }

    /// Whether it ends for that.
    pub(crate) fn is_given_up(&self) -> bool {
        self.lock().is_given_up
    }

    /// The ticket of the request, if it has ended.
    pub(crate) fn take(&self) -> Option<Ticket> {
        self.lock().ticket.take()
    }
}

/// Where the pieces of a stream are counted until the client has taken them.
struct Counting {
    /// Of its connection.
    activity: Arc<Activity>,
    /// Of its stream in HTTP/2, else of its connection.
    backlog: Arc<ResponseBacklog>,
    /// Of a stream of HTTP/2 that is not one message. Its end waits until the client has taken all before it: the protocol cannot
    /// reset a stream that has ended, so what its client has not taken could only end with the whole connection.
    ends_when_taken: bool,
    silence: Duration,
    /// They wait until they may leave.
    trailers: Option<Frame<Bytes>>,
}

impl Counting {
    fn counted(&self, data: Bytes) -> Bytes {
        let count = if self.ends_when_taken { backlog::counted_in_stream } else { backlog::counted };
        count(data, &self.backlog, self.silence)
    }

    /// Whether the stream may end now.
    fn may_end(&self) -> bool {
        !self.ends_when_taken || self.backlog.is_taken()
    }

    /// Waits until the stream may end, if this frame ends it.
    fn poll_end(&mut self, frame: &mut Option<Result<Frame<Bytes>, BrokenOff>>, cx: &mut Context<'_>) -> Poll<()> {
        let is_end = frame.as_ref().is_none_or(|frame| frame.as_ref().is_ok_and(Frame::is_trailers));
        if !is_end || !self.ends_when_taken || self.backlog.poll_taken(cx).is_ready() {
            return Poll::Ready(());
        }
        self.trailers = frame.take().and_then(Result::ok);
        Poll::Pending
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Whole(data) => f.debug_tuple("Whole").field(data).finish(),
            Content::Stream(..) => f.write_str("Stream"),
        }
    }
}

impl<T: Into<Bytes>> From<T> for ReplyBody {
    fn from(data: T) -> ReplyBody {
        let data = data.into();
        ReplyBody::new(Content::Whole((!data.is_empty()).then_some(data)))
    }
}

impl ReplyBody {
    /// An answer that comes in pieces while it is computed, such as that of a gRPC stream.
    pub(crate) fn stream(stream: ReplyStream) -> ReplyBody {
        ReplyBody::new(Content::Stream(stream, None, None))
    }

    /// One message of gRPC.
    pub(crate) fn message(stream: ReplyStream) -> ReplyBody {
        let mut body = ReplyBody::stream(stream);
        body.is_message = true;
        body
    }

    /// The answer to one item that comes in parts, whose stream leaves the ticket of its request in `ending`.
    pub(crate) fn parts(stream: ReplyStream, ending: Ending) -> ReplyBody {
        ReplyBody::new(Content::Stream(stream, None, Some(ending)))
    }

    fn new(content: Content) -> ReplyBody {
        ReplyBody { content, is_message: false, active: None, ticket: None, followers: Followers::default() }
    }

    /// Counts the request with this body.
    pub(crate) fn count_with(&mut self, ticket: Ticket) {
        self.ticket = Some(ticket);
    }

    /// Ends what follows its request with this body. `outcome` and `status` are those of an answer whose request asked for no
    /// items.
    pub(crate) fn follow_with(&mut self, mut followers: Followers, outcome: Option<Outcome>, status: u16) {
        // An answer in parts has its ticket at its end. If that does not come, the client has left.
        let is_in_parts = matches!(self.content, Content::Stream(_, _, Some(_)));
        let (outcome, items) = if is_in_parts { (Some(Outcome::Cancelled), 1) } else { (outcome, 0) };
        let page = Ended { deployment: None, outcome, status, items, batch_size: 0 };
        followers.end_page(page);
        self.ticket.iter().for_each(|ticket| followers.end(ticket, status));
        followers.add_answer_bytes(self.len().unwrap_or_default());
        self.followers = followers;
    }

    /// How its request ended; `None` of an answer that asked for no items.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.ticket.as_ref().map(Ticket::outcome)
    }

    /// Where the time of its request went: zeros if the engine never had it.
    pub(crate) fn timing(&self) -> Timing {
        self.ticket.as_ref().map(|ticket| ticket.timing).unwrap_or_default()
    }

    /// Of an answer in parts: where the time until its first part went.
    pub(crate) fn first_part(&self) -> Option<Timing> {
        match &self.content {
            Content::Stream(_, _, Some(ending)) => ending.lock().first_part,
            Content::Stream(..) | Content::Whole(_) => None,
        }
    }

    /// Bytes of an answer in one piece; `None` for a stream, whose length is not known.
    pub(crate) fn len(&self) -> Option<usize> {
        match &self.content {
            Content::Whole(data) => Some(data.as_ref().map_or(0, Bytes::len)),
            Content::Stream(..) => None,
        }
    }

    /// An answer in one piece; `None` for a stream, and for an answer without content.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Whole(data) => data.as_ref(),
            Content::Stream(..) => None,
        }
    }

    /// Sends these bytes in place of an answer in one piece.
    pub(crate) fn replace(&mut self, data: Bytes) {
        self.content = Content::Whole(Some(data));
    }

    /// Hands the answer over to the connection: what its client does not take is counted, and bounded in time.
    /// HTTP/2 can end the stream of an answer that comes in pieces, with these answers, without its connection.
    pub(crate) fn hand_over(
        &mut self,
        mut active: Active,
        state: &ServerState,
        activity: &Arc<Activity>,
        stream: Option<Arc<ResponseBacklog>>,
    ) {
        let silence = state.options.body_timeout();
        match &mut self.content {
            Content::Whole(data) => {
                active.reply();
                *data = data.take().map(|data| backlog::counted(data, &activity.backlog, silence));
            }
            // Between two pieces it is the model that is waited for, not the client.
            Content::Stream(_, account, _) => {
                let ends_when_taken = stream.is_some() && !self.is_message;
                let backlog = stream.unwrap_or_else(|| activity.backlog.clone());
                let activity = activity.clone();
                *account = Some(Counting { activity, backlog, ends_when_taken, silence, trailers: None });
            }
        }
        self.active = Some(active);
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        if let Content::Stream(_, account, Some(ending)) = &self.content {
            let ending = ending.clone();
            if account
                .as_ref()
                .is_some_and(|account| account.backlog.is_given_up() || account.activity.backlog.is_given_up())
            {
                ending.give_up();
            }
            // The stream says how its request ends.
            self.content = Content::Whole(None);
            ending.take().iter().for_each(|ticket| self.followers.end(ticket, 200));
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let body = &mut *self;
        match &mut body.content {
            Content::Whole(data) => {
                let data = data.take();
                drop((body.ticket.take(), std::mem::take(&mut body.followers)));
                Poll::Ready(data.map(|data| Ok(Frame::data(data))))
            }
            Content::Stream(stream, account, ending) => {
                let mut frame = match account.as_mut().and_then(|account| account.trailers.take()) {
                    Some(trailers) => Some(Ok(trailers)),
                    None => ready!(stream.as_mut().poll_frame(cx)),
                };
                if let Some(account) = account {
                    ready!(account.poll_end(&mut frame, cx));
                }
                // The status left with the head, whatever came later.
                ending.as_ref().and_then(Ending::take).iter().for_each(|ticket| body.followers.end(ticket, 200));
                match &frame {
                    Some(Ok(frame)) => body.followers.add_answer_bytes(frame.data_ref().map_or(0, Bytes::len)),
                    None => drop(std::mem::take(&mut body.followers)),
                    Some(Err(_)) => {}
                }
                let counted = |data| match &*account {
                    Some(account) => account.counted(data),
                    None => data,
                };
                Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(counted))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(data) => data.is_none(),
            Content::Stream(stream, account, _) => {
                stream.is_end_stream() && account.as_ref().is_none_or(Counting::may_end)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(data) => SizeHint::with_exact(data.as_ref().map_or(0, Bytes::len) as u64),
            Content::Stream(stream, ..) => stream.size_hint(),
        }
    }
}
