//! Arrays out of `.npy` files and out of raw bytes: their elements stay where they are.

use crate::items::arrays::npy;
use crate::items::arrays::parameter::{check, describe, fixed, part};
use crate::items::arrays::shape::check_shape;
use crate::items::document::invalid;
use crate::items::many;
use crate::values::answer::Failure;
use crate::values::call::Part;
use crate::values::chunks::Chunks;
use crate::values::tensor::TensorType;
use jitney_core::config::manifest::ArraySpec;
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;

/// An array that came as a `.npy` file: its header is taken off, its elements stay where they are.
pub fn from_npy(spec: &ArraySpec, file: Chunks) -> Result<Part, Failure> {
    let (array, data) = open_npy(file)?;
    check(spec, "$", &array)?;
    part(array, data)
}

/// The rows of a `.npy` file, each an array of this parameter; their elements stay where they are.
pub fn rows_from_npy(spec: &ArraySpec, file: Chunks, most: usize) -> Result<Vec<Part>, Failure> {
    let (array, mut data) = open_npy(file)?;
    let Some((&rows, row)) = array.shape.split_first() else {
        return Err(invalid("$", "expected an array whose first axis is n, got a single number"));
    };
    let row = TensorType { dtype: array.dtype, shape: SmallVec::from_slice(row) };
    check(spec, "$[0]", &row)?;
    let rows = usize::try_from(rows).ok().filter(|&rows| rows <= most).ok_or_else(|| many::too_many(most))?;
    let length = data.len().checked_div(rows).unwrap_or(0);
    (0..rows).map(|_| part(row.clone(), data.split_to(length))).collect()
}

/// What the header of a `.npy` file says, and its elements.
fn open_npy(mut file: Chunks) -> Result<(TensorType, Chunks), Failure> {
    let malformed = |what: &str| {
        Failure::new(Outcome::MalformedBody, format!("the body is not a .npy file that can be read: {what}"))
    };
    let (array, start) = match file.0.first().map(|first| npy::parse(first)) {
        Some(Ok(parsed)) => parsed,
        // The header may be longer than the first piece.
        _ => npy::parse(&front(&file, npy::HEADER_BYTES)).map_err(|what| malformed(&what))?,
    };
    drop(file.split_to(start));
    // If each row is an item, this is the shape of all rows together.
    check_shape(&array.shape).map_err(|what| invalid("$", &what))?;
    let Some(expected) = array.byte_len() else {
        return Err(invalid("$", &format!("expected an array that memory can hold, got {}", describe(&array))));
    };
    if expected != file.len() as u64 {
        return Err(malformed(&format!("its header speaks of {expected} bytes of elements, {} follow", file.len())));
    }
    Ok((array, file))
}

/// An array that came as nothing but its elements: dtype and shape must be fixed.
pub fn from_raw(spec: &ArraySpec, data: Chunks) -> Result<Part, Failure> {
    let array = fixed(spec).ok_or_else(|| {
        let what = format!("raw bytes do not say their shape, and the shape of `{}` is open; send application/json, application/msgpack or application/x-npy", spec.name);
        Failure::new(Outcome::UnsupportedMediaType, what)
    })?;
    if array.byte_len() != Some(data.len() as u64) {
        let expected =
            format!("expected {} bytes ({}), got {}", array.byte_len().unwrap_or(0), describe(&array), data.len());
        return Err(invalid("$", &expected));
    }
    part(array, data)
}

/// The first bytes in one piece.
fn front(chunks: &Chunks, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in &chunks.0 {
        bytes.extend_from_slice(&chunk[..chunk.len().min(most - bytes.len())]);
    }
    bytes
}
