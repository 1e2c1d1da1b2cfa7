//! How a program sends a request to its server.

use crate::clients::answer_frames::until_written;
use crate::clients::call_frame;
use crate::clients::client::calls::{AwaitedAnswer, LATE, OutgoingCall, Place, Sent, Shared, Standing};
use crate::clients::greeting::Welcome;
use crate::engine::program_values::{Parts, Terms};
use crate::link::frame::header::Segments;
use crate::values::answer::Failure;
use bytes::Bytes;
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// A request that is to be sent.
pub(super) struct Request<'a> {
    pub(super) deployment: &'a str,
    pub(super) items: &'a [Parts],
    pub(super) terms: Terms,
}

/// Sends a request when the connection has a place for it. `frame` writes it with what is left of its time, and `awaited` gives
/// the answer that it waits for, once.
pub(super) async fn send(
    shared: Arc<Shared>,
    Request { deployment, items, terms }: Request<'_>,
    frame: impl Fn(u64, &Terms) -> Segments,
    mut awaited: impl FnMut() -> Option<AwaitedAnswer>,
) -> Result<SentCall, Failure> {
    let began = Instant::now();
    let bytes: usize = items.iter().flatten().map(|part| part.data.len()).sum();
    loop {
        let place = Arc::new(shared.place(&terms.parents).await.ok_or_else(|| shared.lost())?);
        let timeout = terms.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        if timeout.is_some_and(|left| left.is_zero()) {
            let detail = "the deadline passed before the server had a place for this call among those of the program";
            return Err(Failure::new(Outcome::DeadlineExceeded, detail));
        }
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        let frame = frame(id, &Terms { timeout, ..terms.clone() });
        if let Some(failure) = too_large(&shared, items.len(), bytes, frame.iter().map(Bytes::len).sum()) {
            return Err(failure);
        }
        // A call that is given up before it was written keeps its place until then: large ones would pile up.
        let frame = until_written(frame, place.clone());
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout)?.checked_add(LATE));
        let call = OutgoingCall { id, deployment, parents: terms.parents.items.clone(), end };
        match shared.send(call, &place, frame, &mut awaited) {
            Sent::Waits => return Ok(SentCall { id, shared, _place: place }),
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
    }
}

/// A call that was sent. It keeps its place until it is dropped, and is cancelled then if it has no answer.
#[derive(Debug)]
pub(super) struct SentCall {
    id: u64,
    shared: Arc<Shared>,
    _place: Arc<Place>,
}

impl SentCall {
    /// Says that the caller has taken so many bytes of the parts of its answer.
    pub(super) fn took(&self, bytes: u64) {
        self.shared.took(self.id, bytes);
    }
}

impl Drop for SentCall {
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
