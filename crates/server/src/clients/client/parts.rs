//! An answer in parts from a server, as its caller reads it.

use crate::clients::call_frame;
use crate::clients::client::calls::{AwaitedAnswer, Shared};
use crate::clients::client::incoming::{Incoming, Taken};
use crate::clients::client::sending::{Request, SentCall, send};
use crate::clients::part_frames::WINDOW;
use crate::engine::program_values::parts::{BoxedCallParts, CallParts};
use crate::engine::program_values::{Parts, Terms};
use crate::engine::reply::{ReplyEvent, ReplyReceiver};
use crate::values::answer::Failure;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The caller's end. Dropping it before the end cancels the call.
struct RemoteParts {
    receiver: ReplyReceiver,
    taken: Taken,
    /// Bytes that the server knows to be taken.
    reported: u64,
    /// `None` after the end.
    call: Option<SentCall>,
}

/// Sends an item to the server when there is a place for it.
pub(super) async fn open(
    shared: Arc<Shared>,
    deployment: Arc<str>,
    item: Parts,
    terms: Terms,
) -> Result<BoxedCallParts, Failure> {
    let (incoming, receiver, taken) = Incoming::new();
    let mut awaited = Some(AwaitedAnswer::Parts(Box::new(incoming)));
    let caller = shared.caller;
    let frame = |id, terms: &Terms| call_frame::stream(caller, id, &deployment, item.clone(), terms);
    let request = Request { deployment: &deployment, items: std::slice::from_ref(&item), terms };
    let call = send(shared, request, frame, || awaited.take()).await?;
    Ok(Box::new(RemoteParts { receiver, taken, reported: 0, call: Some(call) }))
}

impl CallParts for RemoteParts {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        let event = ready!(self.receiver.poll_event(cx));
        match (&event, &self.call) {
            (ReplyEvent::Part(_), Some(call)) => {
                let more = self.taken.bytes().saturating_sub(self.reported);
                // Seldom: each is a frame.
                if more >= WINDOW / 2 {
                    self.reported += more;
                    call.took(more);
                }
            }
            _ => drop(self.call.take()),
        }
        Poll::Ready(event)
    }
}
