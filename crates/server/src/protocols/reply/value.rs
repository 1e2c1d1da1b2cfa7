//! The values of an answer in JSON and in msgpack. JSON has no NaN and no infinities: they are written as `null`.

use crate::items::{base64, half};
use crate::protocols::reply::elements::{Json, Msgpack, elements};
use crate::values::answer::{Failure, OutputPart};
use crate::values::tensor::{Dtype, Tag};
use jitney_core::tables::outcome::Outcome;
use std::borrow::Cow;

/// An answer as a JSON value.
pub(crate) fn json(body: &mut Vec<u8>, parts: &[OutputPart]) -> Result<(), Failure> {
    if let [part] = parts
        && part.name.is_empty()
    {
        return json_value(body, part);
    }
    for (index, part) in parts.iter().enumerate() {
        body.push(if index == 0 { b'{' } else { b',' });
        json_string(body, &part.name);
        body.push(b':');
        json_value(body, part)?;
    }
    body.extend_from_slice(if parts.is_empty() { b"{}" } else { b"}" });
    Ok(())
}

/// An array of floats as base64 of little-endian float32, whatever it is made of.
pub(crate) fn base64_f32(body: &mut Vec<u8>, part: &OutputPart) -> Result<(), Failure> {
    let dtype = part.tensor.as_ref().map(|tensor| tensor.dtype);
    let data = &part.data[..];
    let floats: Cow<'_, [u8]> = match dtype {
        Some(Dtype::Float32) => Cow::Borrowed(data),
        Some(Dtype::Float64) => {
            data.as_chunks().0.iter().flat_map(|&bytes| (f64::from_le_bytes(bytes) as f32).to_le_bytes()).collect()
        }
        Some(Dtype::Float16) => {
            data.as_chunks().0.iter().flat_map(|&bytes| half::to_f32(u16::from_le_bytes(bytes)).to_le_bytes()).collect()
        }
        _ => return Err(Failure::new(Outcome::InvalidOutput, "the model returned a vector that is not of floats")),
    };
    base64::write(body, &floats);
    Ok(())
}

/// The index of the first element that JSON cannot write: NaN or an infinity.
pub(crate) fn not_finite(dtype: Dtype, data: &[u8]) -> Option<usize> {
    match dtype {
        Dtype::Float16 => {
            data.as_chunks().0.iter().position(|&bytes| !half::to_f32(u16::from_le_bytes(bytes)).is_finite())
        }
        Dtype::Float32 => data.as_chunks().0.iter().position(|&bytes| !f32::from_le_bytes(bytes).is_finite()),
        Dtype::Float64 => data.as_chunks().0.iter().position(|&bytes| !f64::from_le_bytes(bytes).is_finite()),
        _ => None,
    }
}

/// An answer as a msgpack value.
pub(crate) fn msgpack(body: &mut Vec<u8>, parts: &[OutputPart]) -> Result<(), Failure> {
    if let [part] = parts
        && part.name.is_empty()
    {
        return msgpack_value(body, part);
    }
    // A Vec takes every byte.
    let _ = rmp::encode::write_map_len(body, parts.len() as u32);
    for part in parts {
        let _ = rmp::encode::write_str(body, &part.name);
        msgpack_value(body, part)?;
    }
    Ok(())
}

/// Appends a string of JSON.
pub(crate) fn json_string(out: &mut Vec<u8>, text: &str) {
    // A Vec takes every byte.
    let _ = serde_json::to_writer(out, text);
}

fn utf8(part: &OutputPart) -> Result<&str, Failure> {
    std::str::from_utf8(&part.data).map_err(|_| Failure::new(Outcome::InvalidOutput, "the model's text is not UTF-8"))
}

pub(crate) fn json_value(out: &mut Vec<u8>, part: &OutputPart) -> Result<(), Failure> {
    match part.tag {
        Tag::Json => out.extend_from_slice(&part.data),
        Tag::Text => json_string(out, utf8(part)?),
        Tag::Bytes => base64::write(out, &part.data),
        Tag::Tensor => elements(out, part, &Json)?,
        Tag::Msgpack => {
            return Err(Failure::new(Outcome::InvalidOutput, "a msgpack value cannot stand in a JSON answer"));
        }
    }
    Ok(())
}

pub(crate) fn msgpack_value(out: &mut Vec<u8>, part: &OutputPart) -> Result<(), Failure> {
    match part.tag {
        Tag::Msgpack => out.extend_from_slice(&part.data),
        Tag::Text => drop(rmp::encode::write_str(out, utf8(part)?)),
        Tag::Bytes => drop(rmp::encode::write_bin(out, &part.data)),
        Tag::Tensor => elements(out, part, &Msgpack)?,
        Tag::Json => return Err(Failure::new(Outcome::InvalidOutput, "a JSON value cannot stand in a msgpack answer")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_is_found() {
        let of = |dtype, bytes: &[&[u8]]| not_finite(dtype, &bytes.concat());
        assert_eq!(of(Dtype::Float64, &[&1f64.to_le_bytes(), &f64::NAN.to_le_bytes()]), Some(1));
        assert_eq!(of(Dtype::Float32, &[&f32::NEG_INFINITY.to_le_bytes()]), Some(0));
        assert_eq!(of(Dtype::Float16, &[&[0, 0x3c], &[0, 0x7c]]), Some(1));
        assert_eq!(of(Dtype::Float32, &[&f32::MAX.to_le_bytes()]), None);
        assert_eq!(of(Dtype::Int32, &[&[0xff; 4]]), None);
    }
}
