//! The body of an infer answer: JSON, and behind it the tensors that were asked for as bytes.

use crate::base::offload::COPIED;
use crate::open_inference::datatype::Datatype;
use crate::open_inference::request::{Parameter, Parameters};
use crate::open_inference::strings;
use crate::open_inference::tensor::{Tensor, quoted};
use crate::protocols::open_inference::read::Binary;
use crate::protocols::reply::value::{json_string, json_value, not_finite};
use crate::values::answer::{Answer, Failure, OutputPart};
use crate::values::tensor::{Tag, TensorType};
use jitney_core::tables::outcome::Outcome;
use std::io::Write as _;

/// The fields of an answer in addition to its tensors.
pub(crate) struct AnswerHead<'a> {
    pub(crate) model: &'a str,
    pub(crate) version: &'a str,
    pub(crate) id: &'a str,
    pub(crate) kept: &'a Parameters,
}

/// An answer, and how many of its bytes are JSON if others follow.
pub(crate) fn write(
    head: &AnswerHead,
    tensors: Vec<Tensor>,
    binary: &Binary,
) -> Result<(Vec<u8>, Option<usize>), Failure> {
    // As text, most numbers take about twice their bytes.
    let room = |tensor: &Tensor| tensor.data.len() * if binary.wants(&tensor.name) { 1 } else { 2 } + 128;
    let mut body = Vec::with_capacity(256 + tensors.iter().map(room).sum::<usize>());
    body.extend_from_slice(b"{\"model_name\":");
    json_string(&mut body, head.model);
    body.extend_from_slice(b",\"model_version\":");
    json_string(&mut body, head.version);
    if !head.id.is_empty() {
        body.extend_from_slice(b",\"id\":");
        json_string(&mut body, head.id);
    }
    if !head.kept.is_empty() {
        body.extend_from_slice(b",\"parameters\":");
        parameters(&mut body, head.kept);
    }
    body.extend_from_slice(b",\"outputs\":[");
    let mut raw = Vec::new();
    for (place, tensor) in tensors.into_iter().enumerate() {
        if place > 0 {
            body.push(b',');
        }
        body.extend_from_slice(b"{\"name\":");
        json_string(&mut body, &tensor.name);
        // A Vec takes every byte.
        let _ = write!(body, ",\"datatype\":\"{}\",\"shape\":[", tensor.datatype.name());
        for (place, axis) in tensor.shape.iter().enumerate() {
            let _ = write!(body, "{}{axis}", if place > 0 { "," } else { "" });
        }
        if binary.wants(&tensor.name) {
            let _ = write!(body, "],\"parameters\":{{\"binary_data_size\":{}}}}}", tensor.data.len());
            raw.push(tensor.data);
        } else {
            body.extend_from_slice(b"],\"data\":");
            data(&mut body, tensor)?;
            body.push(b'}');
        }
    }
    body.extend_from_slice(b"]}");
    if raw.is_empty() {
        return Ok((body, None));
    }
    let json_bytes = body.len();
    raw.iter().flat_map(|chunks| &chunks.0).for_each(|chunk| body.extend_from_slice(chunk));
    Ok((body, Some(json_bytes)))
}

/// How much work it is to write these answers, in bytes that are written anew, or compressed. `unnamed` is the output that
/// a value without a name is.
pub(crate) fn weight(answers: &[Answer], unnamed: &str, binary: &Binary, is_compressed: bool) -> usize {
    let wants = |part: &OutputPart| binary.wants(if part.name.is_empty() { unnamed } else { &part.name });
    let is_copied = |part: &OutputPart| !is_compressed && wants(part);
    let one = |part: &OutputPart| part.data.len() / if is_copied(part) { COPIED } else { 1 };
    let parts = answers.iter().filter_map(|answer| answer.result.as_ref().ok()).flatten();
    parts.map(one).sum()
}

fn parameters(out: &mut Vec<u8>, parameters: &Parameters) {
    for (place, (name, value)) in parameters.iter().enumerate() {
        out.push(if place == 0 { b'{' } else { b',' });
        json_string(out, name);
        out.push(b':');
        let _ = match value {
            Parameter::Bool(value) => serde_json::to_writer(&mut *out, value),
            Parameter::Int(value) => serde_json::to_writer(&mut *out, value),
            Parameter::Uint(value) => serde_json::to_writer(&mut *out, value),
            Parameter::Double(value) => serde_json::to_writer(&mut *out, value),
            Parameter::Text(value) => serde_json::to_writer(&mut *out, value),
        };
    }
    out.push(b'}');
}

fn unsayable(name: &str, what: &str) -> Failure {
    let detail = format!("output {}: {what}, which JSON cannot hold; ask for it with binary_data", quoted(name));
    Failure::new(Outcome::NotAcceptable, detail)
}

/// All elements in one list.
fn data(out: &mut Vec<u8>, mut tensor: Tensor) -> Result<(), Failure> {
    let mut data = tensor.data.contiguous().clone();
    let dtype = match tensor.datatype {
        Datatype::Fixed(dtype) => dtype,
        Datatype::Bytes => {
            out.push(b'[');
            let mut separator: &[u8] = b"";
            while let Ok(element) = strings::next(&mut data) {
                let text = std::str::from_utf8(&element)
                    .map_err(|_| unsayable(&tensor.name, "it has elements that are not UTF-8"))?;
                out.extend_from_slice(separator);
                json_string(out, text);
                separator = b",";
            }
            out.push(b']');
            return Ok(());
        }
    };
    // JSON has null for both, so the client could not distinguish NaN from an infinity.
    if let Some(place) = not_finite(dtype, &data) {
        let what = format!("element {place} is NaN or infinite");
        return Err(unsayable(&tensor.name, &what));
    }
    let shape = std::iter::once((data.len() / dtype.size()) as u64).collect();
    let tensor = Some(TensorType { dtype, shape });
    json_value(out, &OutputPart { name: "".into(), tag: Tag::Tensor, tensor, media_type: None, data })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::chunks::Chunks;
    use crate::values::tensor::Dtype;

    #[test]
    fn what_json_cannot_hold_is_to_be_asked_for_as_bytes() {
        let head = AnswerHead { model: "m", version: "1", id: "", kept: &vec![] };
        let of = |dtype, data: &[u8], binary: &Binary| {
            let data = Chunks::from(bytes::Bytes::copy_from_slice(data));
            let tensor =
                Tensor { name: "x".into(), datatype: Datatype::Fixed(dtype), shape: [2].into_iter().collect(), data };
            write(&head, vec![tensor], binary)
                .map(|(body, json_bytes)| (String::from_utf8_lossy(&body).into_owned(), json_bytes))
        };
        let json = Binary::default();
        for strange in [f32::NAN, f32::INFINITY] {
            let data = [1f32.to_le_bytes(), strange.to_le_bytes()].concat();
            let failure = of(Dtype::Float32, &data, &json).unwrap_err();
            assert_eq!(failure.outcome, Outcome::NotAcceptable);
            assert!(
                failure.detail.contains("`x`: element 1") && failure.detail.contains("binary_data"),
                "{}",
                failure.detail
            );
        }
        assert!(of(Dtype::Float16, &[0, 0x3c, 0, 0x7c], &json).is_err());
        assert!(of(Dtype::Int8, &[255, 127], &json).unwrap().0.contains("[-1,127]"));
    }
}
