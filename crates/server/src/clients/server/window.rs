//! How much of one answer in parts may be sent to its program before the program says that it has taken some.

use crate::clients::part_frames::WINDOW;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::sync::Notify;

/// The window of one answer.
#[derive(Debug)]
pub(super) struct Window {
    /// Bytes that may be sent. Below 0 after a part that was larger.
    left: AtomicI64,
    more: Notify,
}

impl Default for Window {
    fn default() -> Window {
        Window { left: AtomicI64::new(WINDOW as i64), more: Notify::new() }
    }
}

impl Window {
    /// Whether a part may be sent.
    pub(super) fn is_open(&self) -> bool {
        self.left.load(Ordering::Acquire) > 0
    }

    /// Waits until a part may be sent.
    pub(super) async fn opens(&self) {
        while !self.is_open() {
            self.more.notified().await;
        }
    }

    /// A part of so many bytes is sent.
    pub(super) fn spend(&self, bytes: usize) {
        self.left.fetch_sub(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::AcqRel);
    }

    /// The program has taken so many bytes. Whatever it says, it never has more than the window.
    pub(super) fn give(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let more = |left: i64| Some(left.saturating_add(bytes).min(WINDOW as i64));
        let _ = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        self.more.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_window_opens_when_the_program_has_taken_enough() {
        let window = Window::default();
        window.spend(WINDOW as usize * 2);
        assert!(window.opens().now_or_never().is_none());
        window.give(WINDOW);
        assert!(window.opens().now_or_never().is_none(), "the large part has not been taken yet");
        window.give(1);
        assert!(window.opens().now_or_never().is_some());
        window.give(u64::MAX);
        window.give(u64::MAX);
        window.spend(WINDOW as usize);
        assert!(!window.is_open(), "no program has a larger window");
    }
}
