//! One deployment of a server, as a program calls it.

use crate::clients::answer_frames::until_written;
use crate::clients::call_frame;
use crate::clients::client::calls::{LATE, Sent, Shared, Standing};
use crate::clients::greeting::Welcome;
use crate::engine::program_values::parts::{EndedParts, Streaming};
use crate::engine::program_values::{Answering, Parts, Terms};
use crate::values::answer::{Answer, Failure};
use bytes::Bytes;
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// The way in to one deployment of the server.
#[derive(Clone, Debug)]
pub struct RemoteEntrance {
    pub(super) deployment: Arc<str>,
    pub(super) shared: Arc<Shared>,
}

impl RemoteEntrance {
    /// Runs the items of one request: an answer each, in order.
    pub fn call(&self, items: Vec<Parts>, terms: Terms) -> Answering {
        let (shared, deployment) = (self.shared.clone(), self.deployment.clone());
        Box::pin(async move {
            let count = items.len();
            call(&shared, &deployment, items, terms)
                .await
                .unwrap_or_else(|failure| vec![Answer::failed(failure); count])
        })
    }
}

impl RemoteEntrance {
    /// Runs one item whose answer comes in parts.
    #[allow(clippy::unused_self, reason = "parts do not cross to programs yet")]
    pub fn stream(&self, _item: Parts, _terms: Terms) -> Streaming {
        let failure = Failure::new(Outcome::Unavailable, "answers in parts do not come through jitney.connect yet");
        Box::new(EndedParts(Some(Answer::failed(failure))))
    }
}

async fn call(shared: &Shared, deployment: &str, items: Vec<Parts>, terms: Terms) -> Result<Vec<Answer>, Failure> {
    let (count, began) = (items.len(), Instant::now());
    let bytes: usize = items.iter().flatten().map(|part| part.data.len()).sum();
    // The place is kept until the answers are there.
    let (id, answers, _place) = loop {
        let place = Arc::new(shared.place().await.ok_or_else(|| shared.lost())?);
        let timeout = terms.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        if timeout.is_some_and(|left| left.is_zero()) {
            let detail = "the deadline passed before the server had a place for this call among those of the program";
            return Err(Failure::new(Outcome::DeadlineExceeded, detail));
        }
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        let frame = call_frame::call(id, deployment, items.clone(), &Terms { timeout, ..terms.clone() });
        if let Some(failure) = too_large(shared, count, bytes, frame.iter().map(Bytes::len).sum()) {
            return Err(failure);
        }
        // A call that is given up before it was written keeps its place until then: large ones would pile up.
        let frame = until_written(frame, place.clone());
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout)?.checked_add(LATE));
        match shared.send(id, deployment, (count, end), &place, frame) {
            Sent::Waits(answers) => break (id, answers, place),
            // The place is of a connection that was lost meanwhile: the new one has its own places.
            Sent::OtherLine => {}
            Sent::NoLine => return Err(shared.lost()),
            Sent::Changed => {
                let address = &shared.address.address;
                let detail = format!(
                    "the server at {address} was started again, and its {deployment} takes or returns something else than \
                     before: connect again"
                );
                return Err(Failure::new(Outcome::Disconnected, detail));
            }
        }
    };
    let _cancel = CancelOnDrop { id, shared };
    let lost = |_| {
        let detail = format!("the server at {} was lost while it had this call", shared.address.address);
        Failure::new(Outcome::Disconnected, detail)
    };
    answers.await.map_err(lost)
}

/// Cancels the call when its caller goes away. A call that has its answers is not in flight any more.
struct CancelOnDrop<'a> {
    id: u64,
    shared: &'a Shared,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.cancel(self.id);
    }
}

/// Why a request cannot be sent: it would end the connection, and with it all calls in flight. `bytes` are those of the
/// items, `framed` those of the frame.
pub(super) fn too_large(shared: &Shared, items: usize, bytes: usize, framed: usize) -> Option<Failure> {
    let standing = shared.standing.borrow();
    let Standing::Connected(welcome) = &*standing else { return None };
    let Welcome { max_body_bytes, max_items, .. } = **welcome;
    let detail = if items as u64 > max_items {
        format!("the request has {items} items, the server takes {max_items} at once; send the others in another")
    } else if bytes as u64 > max_body_bytes || framed as u64 > max_body_bytes.saturating_add(call_frame::TABLE as u64) {
        format!("the items have {bytes} bytes, the server takes {max_body_bytes} (max_body_bytes)")
    } else {
        return None;
    };
    Some(Failure::new(Outcome::TooLarge, detail))
}
