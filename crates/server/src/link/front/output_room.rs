//! How much of what a worker prints may be on its way to the front.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes that one worker has printed and that are on their way to the front.
const MOST_OUTPUT: usize = 64 << 10;

/// Room for what one worker prints, on its way to the front.
#[derive(Clone, Debug, Default)]
pub struct OutputRoom(Arc<AtomicUsize>);

impl OutputRoom {
    /// Room for so many bytes, until it is dropped; `None` if there is not so much.
    pub fn take(&self, bytes: usize) -> Option<OutputTaken> {
        let taken = self.0.fetch_add(bytes, Ordering::Relaxed);
        let room = OutputTaken { room: self.0.clone(), bytes };
        // A first piece of any length passes: pieces are as long as one read.
        (taken == 0 || taken + bytes <= MOST_OUTPUT).then_some(room)
    }
}

/// Room that what a worker has printed takes.
#[derive(Debug)]
pub struct OutputTaken {
    room: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for OutputTaken {
    fn drop(&mut self) {
        self.room.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_prints_is_bounded_on_its_way() {
        let room = OutputRoom::default();
        let mut taken: Vec<_> = std::iter::from_fn(|| room.take(16 << 10)).collect();
        assert_eq!(taken.len(), 4);
        taken.pop();
        assert!(room.take(16 << 10).is_some() && room.take((16 << 10) + 1).is_none());
    }
}
