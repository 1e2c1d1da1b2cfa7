//! Answers with images in one piece, and what both kinds of answers say of an image.

use crate::engine::request::Answers;
use crate::items::base64;
use crate::protocols::reply::value::json_string;
use crate::values::answer::{Answer, Failure, OutputPart, Usage};
use crate::values::tensor::Tag;
use jitney_core::tables::outcome::Outcome;

/// What is said of all images of a request.
#[derive(Clone, Debug)]
pub(crate) struct ImageEnvelope {
    /// Seconds since 1970.
    pub(super) created: u64,
    /// As the client wrote it, or `auto`.
    pub(super) size: String,
}

/// An image file, and what its format is called.
pub(super) fn file(values: &[OutputPart]) -> Result<(&[u8], &str), Failure> {
    if let [part] = values
        && part.tag == Tag::Bytes
        && let Some(format) = part.media_type().and_then(|media| media.strip_prefix("image/"))
    {
        return Ok((&part.data, format));
    }
    Err(Failure::new(Outcome::InvalidOutput, "the model answered with something else than an image"))
}

/// Appends the member `b64_json`.
pub(super) fn write_file(out: &mut Vec<u8>, file: &[u8]) {
    out.extend_from_slice(b"\"b64_json\":");
    base64::write(out, file);
}

/// Counts of tokens as a member of an object, with a comma before it.
pub(super) fn usage(usage: Usage) -> String {
    let Usage { input, output } = usage;
    let total = input.saturating_add(output);
    let details = format!("{{\"text_tokens\":{input},\"image_tokens\":0}}");
    format!(
        ",\"usage\":{{\"input_tokens\":{input},\"input_tokens_details\":{details},\"output_tokens\":{output},\
         \"total_tokens\":{total}}}"
    )
}

/// The whole answer, if every item has an image.
pub(super) fn write(images: &ImageEnvelope, answers: Answers) -> Result<Vec<u8>, Failure> {
    let mut out = format!("{{\"created\":{},\"data\":[", images.created).into_bytes();
    let (mut format, mut sum) = (String::new(), None);
    for (index, answer) in answers.into_iter().enumerate() {
        let Answer { result, end, .. } = answer;
        let values = result?;
        let (image, of_image) = file(&values)?;
        of_image.clone_into(&mut format);
        out.extend_from_slice(if index > 0 { b",{" } else { b"{" });
        write_file(&mut out, image);
        out.push(b'}');
        if let Some(usage) = end.and_then(|end| end.usage) {
            let before = sum.unwrap_or(Usage { input: usage.input, output: 0 });
            sum = Some(Usage { output: before.output.saturating_add(usage.output), ..before });
        }
    }
    out.extend_from_slice(b"],\"output_format\":");
    json_string(&mut out, &format);
    if images.size != "auto" {
        out.extend_from_slice(format!(",\"size\":{}", serde_json::Value::from(&*images.size)).as_bytes());
    }
    out.extend(sum.map(usage).unwrap_or_default().into_bytes());
    out.push(b'}');
    Ok(out)
}
