//! Answers to what the model asks: they pass the inbox, and go to the caller.

use crate::link::frame::reader::Frame;
use jitney_core::request::ItemId;
use std::io;

/// Gets the answers that arrive on a worker's link.
pub trait AnswerListener: Send + Sync {
    /// A frame of answers, or of parts of one. An error ends the link.
    fn answered(&self, frame: &Frame) -> io::Result<()>;

    /// The link is lost: what was asked over it gets no answer. `next` is the number of the link that follows; `None` if none
    /// does. It must not wait for a thread that writes to the link.
    fn lost(&self, next: Option<u64>);

    /// The items for which something was asked that has no answer yet.
    fn asking(&self) -> Vec<ItemId>;
}
