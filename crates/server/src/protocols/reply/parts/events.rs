//! Server-sent events, as browsers and `curl -N` read them: an event for each part, and one for the end or the failure.
//!
//! ```text
//! data: <part as JSON>
//!
//! event: end
//! data: {"reason": "stop", "usage": {"input": 5, "output": 7}, "answer": <if the model gives a whole one>}
//!
//! event: error
//! data: <problem>
//! ```

use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::problem::ProblemDocument;
use crate::protocols::reply::value;
use crate::values::answer::{Failure, OutputPart, StreamEnd};

/// The form.
#[derive(Debug)]
pub(crate) struct Events;

impl PartsForm for Events {
    fn part(&mut self, out: &mut Vec<u8>, _item: usize, values: &[OutputPart]) -> Result<(), Failure> {
        event(out, "", |out| value::json(out, values))
    }

    fn end(&mut self, out: &mut Vec<u8>, _item: usize, answer: &[OutputPart], end: &StreamEnd) -> Result<(), Failure> {
        event(out, "event: end\n", |out| end_as_json(out, answer, end))
    }

    fn failure(&mut self, out: &mut Vec<u8>, failure: &Failure, request_id: &str) {
        // Strings and numbers can be written.
        let _ = event(out, "event: error\n", |out| {
            out.extend(serde_json::to_vec(&ProblemDocument::of(failure, request_id)).unwrap_or_default());
            Ok(())
        });
    }
}

/// Appends one event. If its data cannot be written, nothing is appended.
pub(crate) fn event(
    out: &mut Vec<u8>,
    head: &str,
    data: impl FnOnce(&mut Vec<u8>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let before = out.len();
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(b"data: ");
    let begin = out.len();
    if let Err(failure) = data(out) {
        out.truncate(before);
        return Err(failure);
    }
    on_one_line(&mut out[begin..]);
    out.extend_from_slice(b"\n\n");
    Ok(())
}

/// The end of an answer as an object of JSON.
pub(crate) fn end_as_json(out: &mut Vec<u8>, answer: &[OutputPart], end: &StreamEnd) -> Result<(), Failure> {
    out.extend_from_slice(b"{\"reason\":");
    out.extend(serde_json::to_vec(&*end.reason).unwrap_or_default());
    if let Some(usage) = end.usage {
        out.extend_from_slice(
            format!(",\"usage\":{{\"input\":{},\"output\":{}}}", usage.input, usage.output).as_bytes(),
        );
    }
    if !answer.is_empty() {
        out.extend_from_slice(b",\"answer\":");
        value::json(out, answer)?;
    }
    out.push(b'}');
    Ok(())
}

/// JSON has line ends only between its tokens, where a space means the same.
pub(crate) fn on_one_line(json: &mut [u8]) {
    json.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
}
