//! The body of a request while it arrives, and what happens to a body that no handler reads.

use crate::base::ledger::Account;
use crate::protocols::connection::discard::DiscardTurns;
use crate::protocols::connection::least_rate::LeastRate;
use crate::protocols::connection::limits::{LINGER, LINGER_MOST};
use bytes::Bytes;
use http_body::{Body, SizeHint};
use hyper::body::{Frame, Incoming};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::runtime::Handle;
use tokio::time::{timeout, timeout_at};

/// A body that may be left unread. In HTTP/2 the protocol would then reset its stream, and a client that is still sending
/// may see nothing but that; so what it sends is dropped for a while, and it finds the answer. (In HTTP/1 the connection
/// ends, see `Socket`.)
#[derive(Debug)]
pub(crate) struct Upload {
    /// `None` once it is left.
    incoming: Option<Incoming>,
    is_http2: bool,
    account: Account,
    /// Counts its bytes for the access log.
    counter: Option<Arc<AtomicU64>>,
}

impl Upload {
    /// `account` is the one of its connection for what is being received.
    pub(crate) fn new(incoming: Incoming, is_http2: bool, account: Account) -> Upload {
        Upload { incoming: Some(incoming), is_http2, account, counter: None }
    }

    /// Counts its bytes there while they arrive.
    pub(crate) fn count_in(&mut self, counter: Arc<AtomicU64>) {
        self.counter = Some(counter);
    }

    /// Moves the body out, for a call that continues after its head was sent. An empty body is left here.
    pub(crate) fn take(&mut self) -> Upload {
        Upload {
            incoming: self.incoming.take(),
            is_http2: self.is_http2,
            account: self.account.clone(),
            counter: self.counter.clone(),
        }
    }

    /// Whether it is a stream of HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Where its bytes are held while they are being received.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Some(incoming) = self.incoming.as_mut() else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(incoming).poll_frame(cx));
        if let (Some(counter), Some(Ok(frame))) = (&self.counter, &frame) {
            counter.fetch_add(frame.data_ref().map_or(0, |data| data.len() as u64), Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.is_http2
            && !self.is_end_stream()
            && let Some(rest) = self.incoming.take()
            // Without a runtime there is no connection either.
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(timeout(LINGER_MOST, pass_over(rest)));
        }
    }
}

/// Reads to the end, or to a sign that there is none: a failure, or a trickle.
async fn pass_over(mut rest: Incoming) {
    let Some(mut dropping) = DiscardTurns::begin() else { return };
    let mut rate = LeastRate::new(LINGER);
    while let Ok(Some(Ok(frame))) = timeout_at(rate.end(), poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx))).await {
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        rate.add(length);
        dropping.read(length);
        dropping.turn().await;
    }
}
