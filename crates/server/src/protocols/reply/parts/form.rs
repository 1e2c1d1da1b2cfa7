//! How a protocol writes an answer that comes in parts.

use crate::values::answer::{Failure, OutputPart, StreamEnd};

/// A form of streams. All that it appends goes to the client in order. An item is named by its place in the request.
pub(crate) trait PartsForm: Send {
    /// Takes the first part before the head leaves, or what there is of the answer if it has no parts. Fails if the client
    /// does not take its type.
    fn begin(&mut self, _first: &[OutputPart]) -> Result<(), Failure> {
        Ok(())
    }

    /// The media type of the answer: that of server-sent events, unless a form has another.
    #[allow(clippy::unnecessary_literal_bound, reason = "a form may take it from the first part")]
    fn media(&self) -> &str {
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

    /// Appends why nothing more comes, if this form can say failures.
    fn failure(&mut self, out: &mut Vec<u8>, failure: &Failure, request_id: &str);

    /// Whether a failure can be written. If not, a stream that fails is broken off.
    fn can_say_failures(&self) -> bool {
        true
    }

    /// What a client skips, sent while nothing else is: it keeps proxies from closing the connection. In server-sent events
    /// this is a comment without text. Empty: the form has none, and the head waits for the first part.
    fn comment(&self) -> &'static [u8] {
        b": \n\n"
    }
}
