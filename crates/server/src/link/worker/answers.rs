//! Answers to what the model asks: they pass the inbox, and go to the caller.

use crate::link::frame::reader::Frame;
use std::io;

/// Gets the answers that arrive on a worker's link.
pub trait AnswerListener: Send + Sync {
    /// A frame of answers, or of parts of one. An error ends the link.
    fn answered(&self, frame: &Frame) -> io::Result<()>;

    /// The link is lost, or has ended: what was asked over it gets no answer. It must not wait for a thread that writes to the link.
    fn lost(&self);
}
