//! How a protocol writes an answer that comes in parts.

use crate::values::answer::{Failure, OutputPart, StreamEnd};

/// A form of streams. All that it appends goes to the client in order. An item is named by its place in the request.
pub(crate) trait PartsForm: Send {
    /// The media type of the answer: that of server-sent events, unless a form has another.
    fn media(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }

    /// Appends a part of an item; fails if it cannot be written in this form.
    fn part(&mut self, out: &mut Vec<u8>, item: usize, values: &[OutputPart]) -> Result<(), Failure>;

    /// Appends what was kept until more was known: for now nothing more comes.
    fn flush(&mut self, _out: &mut Vec<u8>) -> Result<(), Failure> {
        Ok(())
    }

    /// Appends the end of an item. `answer` is the whole answer, if the model gives one in addition to its parts.
    fn end(&mut self, out: &mut Vec<u8>, item: usize, answer: &[OutputPart], end: &StreamEnd) -> Result<(), Failure>;

    /// Appends what comes after the ends of all items.
    fn close(&mut self, _out: &mut Vec<u8>) {}

    /// Appends why nothing more comes.
    fn failure(&mut self, out: &mut Vec<u8>, failure: &Failure, request_id: &str);

    /// What a client skips, sent while nothing else is: it keeps proxies from closing the connection. In server-sent events
    /// this is a comment without text.
    fn comment(&self) -> &'static [u8] {
        b": \n\n"
    }
}
