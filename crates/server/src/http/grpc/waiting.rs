//! What a stream holds: requests that are computed, and answers that the connection has not asked for. Both are counted
//! for the whole server, and bound how much further the stream is read.

use super::frame::Pieces;
use crate::held::Held;
use bytes::Bytes;
use prometheus::IntGauge;
use tokio::sync::watch;

/// A stream is read no further while its requests that are computed and its answers that wait have this many bytes.
const MOST_BYTES: usize = 8 << 20;

/// Those of one stream.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    bytes: watch::Sender<usize>,
    receiving: IntGauge,
    untaken: IntGauge,
}

impl Waiting {
    /// None yet. `receiving` counts the requests of the whole server, `untaken` the answers.
    pub(super) fn new(receiving: IntGauge, untaken: IntGauge) -> Waiting {
        Waiting { bytes: watch::Sender::new(0), receiving, untaken }
    }

    /// A request of this length, counted until what is returned is dropped.
    pub(super) fn ask(&self, length: usize) -> Asked {
        let mut held = Held::new(self.receiving.clone());
        held.grow(length, u64::MAX);
        self.bytes.send_modify(|bytes| *bytes += length);
        Asked { length, bytes: self.bytes.clone(), _held: held }
    }

    /// The pieces of an answer, counted from now on.
    pub(super) fn add(&self, pieces: Pieces) -> Vec<Counted> {
        let count = |piece: Bytes| {
            let mut held = Held::new(self.untaken.clone());
            held.grow(piece.len(), u64::MAX);
            self.bytes.send_modify(|bytes| *bytes += piece.len());
            Counted { piece, bytes: self.bytes.clone(), _held: held }
        };
        pieces.into_iter().map(count).collect()
    }

    /// Waits until the client has taken enough for another request to be read.
    pub(super) async fn room(&self) {
        // It cannot be closed: the sender is here.
        let _ = self.bytes.subscribe().wait_for(|bytes| *bytes < MOST_BYTES).await;
    }
}

/// A request that is computed, counted until this is dropped.
#[derive(Debug)]
pub(super) struct Asked {
    length: usize,
    bytes: watch::Sender<usize>,
    _held: Held,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.bytes.send_modify(|bytes| *bytes -= self.length);
    }
}

/// A piece of an answer, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    piece: Bytes,
    bytes: watch::Sender<usize>,
    _held: Held,
}

impl Counted {
    /// The piece itself; whoever takes it over counts it as well.
    pub(super) fn piece(&self) -> Bytes {
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
        let gauge = IntGauge::new("x", "x").unwrap();
        let asked = IntGauge::new("y", "y").unwrap();
        let waiting = Waiting::new(asked.clone(), gauge.clone());
        let answer = || Pieces::from_iter([Bytes::from(vec![0; MOST_BYTES / 2])]);
        let first = waiting.add(answer());
        assert!(waiting.room().now_or_never().is_some());
        let second = waiting.add(answer());
        assert_eq!(gauge.get(), MOST_BYTES as i64);
        assert!(waiting.room().now_or_never().is_none());
        drop(first);
        assert!(waiting.room().now_or_never().is_some());
        drop(second);
        assert_eq!(gauge.get(), 0);
        let request = waiting.ask(MOST_BYTES);
        assert_eq!(asked.get(), MOST_BYTES as i64);
        assert!(waiting.room().now_or_never().is_none(), "requests that are computed count too");
        drop(request);
        assert!(waiting.room().now_or_never().is_some());
        assert_eq!(asked.get(), 0);
    }
}
