//! What a stream holds: requests that are computed, and answers that the connection has not asked for. Both are counted
//! for the whole server, and bound how much further the stream is read.

use crate::base::ledger::{CountedBytes, Ledger};
use crate::link::frame::reader::detached;
use crate::protocols::grpc::frame::MessagePieces;
use bytes::Bytes;
use tokio::sync::watch;

/// A stream is read no further while its requests that are computed and its answers that wait have this many bytes.
const MOST_BYTES: usize = 8 << 20;

/// Those of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    bytes: watch::Sender<usize>,
    ledger: Ledger,
}

impl Waiting {
    /// None yet. `ledger` has the accounts of the connection.
    pub(crate) fn new(ledger: Ledger) -> Waiting {
        Waiting { bytes: watch::Sender::new(0), ledger }
    }

    /// A request of this length, counted until what is returned is dropped.
    pub(crate) fn ask(&self, length: usize) -> CountedRequest {
        let held = self.ledger.received.hold(length);
        self.bytes.send_modify(|bytes| *bytes += length);
        CountedRequest { length, bytes: self.bytes.clone(), _held: held }
    }

    /// The pieces of an answer, counted from now on.
    pub(crate) fn add(&self, pieces: MessagePieces) -> Vec<Counted> {
        let count = |piece: Bytes| {
            let piece = detached(piece);
            let held = self.ledger.untaken.hold(piece.len());
            self.bytes.send_modify(|bytes| *bytes += piece.len());
            Counted { piece, bytes: self.bytes.clone(), _held: held }
        };
        pieces.into_iter().map(count).collect()
    }

    /// Waits until the client has taken enough for another request to be read.
    pub(crate) async fn room(&self) {
        // It cannot be closed: the sender is here.
        let _ = self.bytes.subscribe().wait_for(|bytes| *bytes < MOST_BYTES).await;
    }
}

/// A request that is computed, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct CountedRequest {
    length: usize,
    bytes: watch::Sender<usize>,
    _held: CountedBytes,
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.bytes.send_modify(|bytes| *bytes -= self.length);
    }
}

/// A piece of an answer, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    piece: Bytes,
    bytes: watch::Sender<usize>,
    _held: CountedBytes,
}

impl Counted {
    /// The piece, without a copy. The connection that gets it counts it again.
    pub(crate) fn piece(&self) -> Bytes {
        self.piece.clone()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.bytes.send_modify(|bytes| *bytes -= self.piece.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_stream_whose_answers_wait_is_read_no_further() {
        let ledger = Ledger::default();
        let waiting = Waiting::new(ledger.clone());
        let answer = || MessagePieces::from_iter([Bytes::from(vec![0; MOST_BYTES / 2])]);
        let first = waiting.add(answer());
        assert!(waiting.room().now_or_never().is_some());
        let second = waiting.add(answer());
        assert_eq!(ledger.untaken.amount(), MOST_BYTES as u64);
        assert!(waiting.room().now_or_never().is_none());
        drop(first);
        assert!(waiting.room().now_or_never().is_some());
        drop(second);
        assert_eq!(ledger.untaken.amount(), 0);
        let request = waiting.ask(MOST_BYTES);
        assert_eq!(ledger.received.amount(), MOST_BYTES as u64);
        assert!(waiting.room().now_or_never().is_none(), "requests that are computed count too");
        drop(request);
        assert!(waiting.room().now_or_never().is_some());
        assert_eq!(ledger.received.amount(), 0);
    }
}
