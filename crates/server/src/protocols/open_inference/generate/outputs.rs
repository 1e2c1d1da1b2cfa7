//! The answer to a generate request: an object with an output under each name, whole or as an event for each part.

use crate::engine::deployment::Deployment;
use crate::protocols::open_inference::error;
use crate::protocols::reply::parts::events::event;
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::problem::Problem;
use crate::protocols::reply::value::{json_string, json_value};
use crate::values::answer::{Failure, OutputPart, StreamEnd};
use crate::values::tensor::{Tag, TensorType};
use smallvec::smallvec;

/// The extension's own name of the one text that a model gives.
const TEXT_OUTPUT: &str = "text_output";

/// Writes the answers to one request.
#[derive(Clone, Debug)]
pub(crate) struct OutputWriter {
    /// What each object begins with.
    begin: Vec<u8>,
    /// The name of an output that has none.
    unnamed: Box<str>,
    says_text: bool,
    /// Whether the fields of an answer are separate outputs.
    splits_answer: bool,
    /// The same of a part.
    splits_part: bool,
}

impl OutputWriter {
    pub(super) fn new(deployment: &Deployment, id: &str, says_text: bool) -> OutputWriter {
        let mut begin = b"{".to_vec();
        if !id.is_empty() {
            begin.extend_from_slice(b"\"id\":");
            json_string(&mut begin, id);
            begin.push(b',');
        }
        begin.extend_from_slice(b"\"model_name\":");
        json_string(&mut begin, &deployment.manifest.name);
        begin.extend_from_slice(b",\"model_version\":");
        json_string(&mut begin, &deployment.version);
        let signature = &deployment.signature;
        OutputWriter {
            begin,
            unnamed: signature.outputs.first().map_or("output".into(), |slot| slot.name.clone()),
            says_text,
            splits_answer: signature.gives_fields,
            splits_part: signature.part.as_ref().is_some_and(|part| part.gives_fields),
        }
    }

    /// Appends a whole answer.
    pub(super) fn answer(&self, out: &mut Vec<u8>, values: &[OutputPart]) -> Result<(), Failure> {
        self.write(out, values, self.splits_answer)
    }

    fn write(&self, out: &mut Vec<u8>, values: &[OutputPart], splits: bool) -> Result<(), Failure> {
        out.extend_from_slice(&self.begin);
        if let [part] = values
            && splits
            && let Some(members) = members(part)
        {
            out.extend_from_slice(if members.is_empty() { b"" } else { b"," });
            out.extend_from_slice(members);
        } else {
            for part in values {
                out.push(b',');
                json_string(out, self.name(part));
                out.push(b':');
                value(out, part)?;
            }
        }
        out.push(b'}');
        Ok(())
    }

    fn name<'a>(&'a self, part: &'a OutputPart) -> &'a str {
        match &*part.name {
            "" if self.says_text && part.tag == Tag::Text => TEXT_OUTPUT,
            "" => &self.unnamed,
            name => name,
        }
    }
}

/// The members of a struct, without its braces.
fn members(part: &OutputPart) -> Option<&[u8]> {
    let document = part.data.trim_ascii();
    let members = document.strip_prefix(b"{")?.strip_suffix(b"}")?;
    (part.tag == Tag::Json && part.name.is_empty()).then(|| members.trim_ascii())
}

/// Writes a value. Of an array one element stands alone and several are one list, as Triton writes them.
fn value(out: &mut Vec<u8>, part: &OutputPart) -> Result<(), Failure> {
    let Some(array) = &part.tensor else { return json_value(out, part) };
    let count = part.data.len() / array.dtype.size();
    let shape = if count == 1 { smallvec![] } else { smallvec![count as u64] };
    let tensor = Some(TensorType { dtype: array.dtype, shape });
    json_value(out, &OutputPart { tensor, ..part.clone() })
}

/// Server-sent events without names: each is an object of outputs, or `{"error": "text"}` as the last.
#[derive(Debug)]
pub(super) struct GenerateEvents(pub(super) OutputWriter);

impl PartsForm for GenerateEvents {
    fn part(&mut self, out: &mut Vec<u8>, _item: usize, values: &[OutputPart]) -> Result<(), Failure> {
        event(out, "", |out| self.0.write(out, values, self.0.splits_part))
    }

    fn end(&mut self, out: &mut Vec<u8>, _item: usize, answer: &[OutputPart], _end: &StreamEnd) -> Result<(), Failure> {
        if answer.is_empty() {
            return Ok(());
        }
        event(out, "", |out| self.0.answer(out, answer))
    }

    fn failure(&mut self, out: &mut Vec<u8>, failure: &Failure, request_id: &str) {
        let written = error::form(&Problem::from(failure.clone()), request_id);
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&written.body);
        out.extend_from_slice(b"\n\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tensor::Dtype;
    use jitney_core::tables::outcome::Outcome;

    fn writer(says_text: bool, splits: bool) -> OutputWriter {
        let begin = br#"{"model_name":"m","model_version":"1""#.to_vec();
        OutputWriter { begin, unnamed: "output".into(), says_text, splits_answer: splits, splits_part: splits }
    }

    fn part(name: &str, tag: Tag, tensor: Option<TensorType>, data: &[u8]) -> OutputPart {
        OutputPart { name: name.into(), tag, tensor, media_type: None, data: data.to_vec().into() }
    }

    fn written(writer: &OutputWriter, values: &[OutputPart]) -> String {
        let mut out = Vec::new();
        writer.answer(&mut out, values).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.strip_prefix(r#"{"model_name":"m","model_version":"1""#).unwrap().to_owned()
    }

    #[test]
    fn an_output_has_its_name_or_that_of_the_extension() {
        let text = [part("", Tag::Text, None, b"a\n")];
        assert_eq!(written(&writer(false, false), &text), r#","output":"a\n"}"#);
        assert_eq!(written(&writer(true, false), &text), r#","text_output":"a\n"}"#);
        let document = [part("", Tag::Json, None, br#" {"text_output": "a", "n": [1]} "#)];
        assert_eq!(written(&writer(true, true), &document), r#","text_output": "a", "n": [1]}"#);
        assert_eq!(written(&writer(true, false), &document), r#","output": {"text_output": "a", "n": [1]} }"#);
        assert_eq!(written(&writer(true, true), &[part("", Tag::Json, None, b"{}")]), "}");
    }

    #[test]
    fn arrays_are_one_list_or_one_number() {
        let array = |name: &str, shape: &[u64], data: &[u8]| {
            part(name, Tag::Tensor, Some(TensorType { dtype: Dtype::Uint8, shape: shape.into() }), data)
        };
        let values = [array("a", &[2, 2], &[1, 2, 3, 4]), array("b", &[1, 1], &[5]), array("c", &[0], &[])];
        assert_eq!(written(&writer(false, false), &values), r#","a":[1,2,3,4],"b":5,"c":[]}"#);
    }

    #[test]
    fn a_failure_is_the_last_event() {
        let (mut form, mut out) = (GenerateEvents(writer(true, false)), Vec::new());
        form.part(&mut out, 0, &[part("", Tag::Text, None, b"a")]).unwrap();
        form.end(&mut out, 0, &[], &StreamEnd { reason: "stop".into(), usage: None }).unwrap();
        form.failure(&mut out, &Failure::new(Outcome::WorkerLost, "its worker\nended"), "r");
        let events = "data: {\"model_name\":\"m\",\"model_version\":\"1\",\"text_output\":\"a\"}\n\n\
                      data: {\"error\":\"its worker\\nended\"}\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), events);
    }
}
