//! How a protocol writes an answer that comes in parts.

use crate::values::answer::{Failure, OutputPart, StreamEnd};

/// A form of streams. All that it appends goes to the client in order.
pub(crate) trait PartsForm: Send {
    /// The media type of the answer.
    fn media(&self) -> &'static str;

    /// Appends a part; fails if it cannot be written in this form.
    fn part(&mut self, out: &mut Vec<u8>, values: &[OutputPart]) -> Result<(), Failure>;

    /// Appends the end. `answer` is the whole answer, if the model gives one in addition to its parts.
    fn end(&mut self, out: &mut Vec<u8>, answer: &[OutputPart], end: &StreamEnd) -> Result<(), Failure>;

    /// Appends why nothing more comes.
    fn failure(&mut self, out: &mut Vec<u8>, failure: &Failure, request_id: &str);

    /// What a client skips, sent while nothing else is: it keeps proxies from closing the connection.
    fn comment(&self) -> &'static [u8];
}
