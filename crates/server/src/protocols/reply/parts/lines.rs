//! Lines of JSON: one for each part, and one for the end or the failure.
//!
//! ```text
//! {"part": <part>}
//! {"end": {"reason": "stop"}}
//! {"error": <problem>}
//! ```

use crate::protocols::reply::parts::events::{end_as_json, on_one_line};
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::problem::ProblemDocument;
use crate::protocols::reply::render::LINES;
use crate::protocols::reply::value;
use crate::values::answer::{Failure, OutputPart, StreamEnd};

/// The form.
#[derive(Debug)]
pub(crate) struct Lines;

impl PartsForm for Lines {
    fn media(&self) -> &'static str {
        LINES
    }

    fn part(&mut self, out: &mut Vec<u8>, _item: usize, values: &[OutputPart]) -> Result<(), Failure> {
        line(out, "part", |out| value::json(out, values))
    }

    fn end(&mut self, out: &mut Vec<u8>, _item: usize, answer: &[OutputPart], end: &StreamEnd) -> Result<(), Failure> {
        line(out, "end", |out| end_as_json(out, answer, end))
    }

    fn failure(&mut self, out: &mut Vec<u8>, failure: &Failure, request_id: &str) {
        // Strings and numbers can be written.
        let _ = line(out, "error", |out| {
            out.extend(serde_json::to_vec(&ProblemDocument::of(failure, request_id)).unwrap_or_default());
            Ok(())
        });
    }

    fn comment(&self) -> &'static [u8] {
        b"\n"
    }
}

/// Appends one line. If its value cannot be written, nothing is appended.
fn line(out: &mut Vec<u8>, key: &str, value: impl FnOnce(&mut Vec<u8>) -> Result<(), Failure>) -> Result<(), Failure> {
    let begin = out.len();
    out.extend_from_slice(format!("{{\"{key}\":").as_bytes());
    if let Err(failure) = value(out) {
        out.truncate(begin);
        return Err(failure);
    }
    on_one_line(&mut out[begin..]);
    out.extend_from_slice(b"}\n");
    Ok(())
}
