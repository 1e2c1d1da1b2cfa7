//! The elements of an array as nested lists, in JSON and in msgpack.

use crate::items::arrays::shape;
use crate::items::half;
use crate::values::answer::{Failure, OutputPart};
use crate::values::tensor::Dtype;
use jitney_core::tables::outcome::Outcome;

/// How numbers and lists are written.
pub(crate) trait ListFormat {
    fn open(&self, out: &mut Vec<u8>, length: u64);
    fn comma(&self, out: &mut Vec<u8>);
    fn close(&self, out: &mut Vec<u8>);
    fn boolean(&self, out: &mut Vec<u8>, value: bool);
    fn unsigned(&self, out: &mut Vec<u8>, value: u64);
    fn signed(&self, out: &mut Vec<u8>, value: i64);
    fn single(&self, out: &mut Vec<u8>, value: f32);
    fn double(&self, out: &mut Vec<u8>, value: f64);
}

pub(crate) struct Json;

impl ListFormat for Json {
    fn open(&self, out: &mut Vec<u8>, _: u64) {
        out.push(b'[');
    }
    fn comma(&self, out: &mut Vec<u8>) {
        out.push(b',');
    }
    fn close(&self, out: &mut Vec<u8>) {
        out.push(b']');
    }
    fn boolean(&self, out: &mut Vec<u8>, value: bool) {
        out.extend_from_slice(if value { b"true" } else { b"false" });
    }
    fn unsigned(&self, out: &mut Vec<u8>, value: u64) {
        out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }
    fn signed(&self, out: &mut Vec<u8>, value: i64) {
        out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }
    fn single(&self, out: &mut Vec<u8>, value: f32) {
        if value.is_finite() {
            out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
        } else {
            out.extend_from_slice(b"null");
        }
    }
    fn double(&self, out: &mut Vec<u8>, value: f64) {
        if value.is_finite() {
            out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
        } else {
            out.extend_from_slice(b"null");
        }
    }
}

pub(crate) struct Msgpack;

impl ListFormat for Msgpack {
    fn open(&self, out: &mut Vec<u8>, length: u64) {
        let _ = rmp::encode::write_array_len(out, length as u32);
    }
    fn comma(&self, _: &mut Vec<u8>) {}
    fn close(&self, _: &mut Vec<u8>) {}
    fn boolean(&self, out: &mut Vec<u8>, value: bool) {
        let _ = rmp::encode::write_bool(out, value);
    }
    fn unsigned(&self, out: &mut Vec<u8>, value: u64) {
        let _ = rmp::encode::write_uint(out, value);
    }
    fn signed(&self, out: &mut Vec<u8>, value: i64) {
        let _ = rmp::encode::write_sint(out, value);
    }
    fn single(&self, out: &mut Vec<u8>, value: f32) {
        let _ = rmp::encode::write_f32(out, value);
    }
    fn double(&self, out: &mut Vec<u8>, value: f64) {
        let _ = rmp::encode::write_f64(out, value);
    }
}

/// Writes an array. Its dtype and its shape come with it.
pub(crate) fn elements<F: ListFormat>(out: &mut Vec<u8>, part: &OutputPart, format: &F) -> Result<(), Failure> {
    let array = part.tensor.as_ref().filter(|array| array.byte_len() == Some(part.data.len() as u64));
    let array = array.ok_or_else(|| Failure::new(Outcome::Internal, "the bytes of an array do not match its shape"))?;
    shape::check_shape(&array.shape).map_err(|what| {
        Failure::new(Outcome::InvalidOutput, format!("the model's array cannot be written as lists: {what}"))
    })?;
    let (shape, data) = (&array.shape[..], &part.data[..]);
    match array.dtype {
        Dtype::Bool => nest(out, shape, data, format, |out, [byte]: [u8; 1]| format.boolean(out, byte != 0)),
        Dtype::Uint8 => nest(out, shape, data, format, |out, [byte]: [u8; 1]| format.unsigned(out, byte.into())),
        Dtype::Uint16 => {
            nest(out, shape, data, format, |out, bytes| format.unsigned(out, u16::from_le_bytes(bytes).into()));
        }
        Dtype::Uint32 => {
            nest(out, shape, data, format, |out, bytes| format.unsigned(out, u32::from_le_bytes(bytes).into()));
        }
        Dtype::Uint64 => nest(out, shape, data, format, |out, bytes| format.unsigned(out, u64::from_le_bytes(bytes))),
        Dtype::Int8 => nest(out, shape, data, format, |out, bytes| format.signed(out, i8::from_le_bytes(bytes).into())),
        Dtype::Int16 => {
            nest(out, shape, data, format, |out, bytes| format.signed(out, i16::from_le_bytes(bytes).into()));
        }
        Dtype::Int32 => {
            nest(out, shape, data, format, |out, bytes| format.signed(out, i32::from_le_bytes(bytes).into()));
        }
        Dtype::Int64 => nest(out, shape, data, format, |out, bytes| format.signed(out, i64::from_le_bytes(bytes))),
        Dtype::Float16 => {
            nest(out, shape, data, format, |out, bytes| format.single(out, half::to_f32(u16::from_le_bytes(bytes))));
        }
        Dtype::Float32 => nest(out, shape, data, format, |out, bytes| format.single(out, f32::from_le_bytes(bytes))),
        Dtype::Float64 => nest(out, shape, data, format, |out, bytes| format.double(out, f64::from_le_bytes(bytes))),
    }
    Ok(())
}

/// Elements of N bytes as nested lists.
fn nest<F: ListFormat, const N: usize>(
    out: &mut Vec<u8>,
    shape: &[u64],
    data: &[u8],
    format: &F,
    write: impl Fn(&mut Vec<u8>, [u8; N]) + Copy,
) {
    let Some((&axis, inner)) = shape.split_first() else {
        if let Some(&element) = data.as_chunks::<N>().0.first() {
            write(out, element);
        }
        return;
    };
    format.open(out, axis);
    if inner.is_empty() {
        for (index, &element) in data.as_chunks::<N>().0.iter().enumerate() {
            if index > 0 {
                format.comma(out);
            }
            write(out, element);
        }
    } else {
        let stride = data.len() / usize::try_from(axis).unwrap_or(usize::MAX).max(1);
        for index in 0..axis as usize {
            if index > 0 {
                format.comma(out);
            }
            nest(out, inner, &data[index * stride..(index + 1) * stride], format, write);
        }
    }
    format.close(out);
}
