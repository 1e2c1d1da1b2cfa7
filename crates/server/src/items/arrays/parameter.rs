//! What a parameter takes: whether an array is that, and what its messages say of both.

use crate::items::arrays::shape::check_shape;
use crate::items::document::invalid;
use crate::values::answer::Failure;
use crate::values::call::Part;
use crate::values::chunks::Chunks;
use crate::values::tensor::{Dtype, Tag, TensorType};
use jitney_core::config::manifest::ArraySpec;
use jitney_core::queue::group_key::KeyPart;
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;

/// An array that came as a value: whether it is what its parameter takes, and has the bytes of its type.
pub fn check_part(spec: &ArraySpec, path: &str, part: &Part) -> Result<(), Failure> {
    let Some(array) = &part.tensor else {
        return Err(invalid(path, &format!("expected {}, got no array", expected(spec))));
    };
    check(spec, path, array)?;
    if array.byte_len() != Some(part.data.len() as u64) {
        return Err(invalid(path, &format!("{} has not {} bytes", describe(array), part.data.len())));
    }
    check_booleans(path, array, &part.data)
}

/// The parts of a group key that arrays of open shape add: only their like can be stacked.
pub fn key_parts(specs: &[ArraySpec], parts: &[Part], key: &mut SmallVec<[KeyPart; 1]>) {
    for (spec, part) in specs.iter().zip(parts) {
        if let (true, Some(array)) = (spec.is_stacked && is_open(spec), &part.tensor) {
            key.push(KeyPart::Tensor(array.dtype as u8, array.shape.clone()));
        }
    }
}

/// Whether arrays of this parameter may differ in shape.
pub fn is_open(spec: &ArraySpec) -> bool {
    spec.shape.as_ref().is_none_or(|shape| shape.iter().any(Option::is_none))
}

pub(super) fn dtype(spec: &ArraySpec) -> Result<Dtype, Failure> {
    Dtype::parse(&spec.dtype).ok_or_else(|| {
        let what =
            format!("the manifest names the dtype `{}` for `{}`, which the front does not know", spec.dtype, spec.name);
        Failure::new(Outcome::Internal, what)
    })
}

pub(super) fn fixed(spec: &ArraySpec) -> Option<TensorType> {
    let shape = spec.shape.as_ref()?.iter().copied().collect::<Option<_>>()?;
    Some(TensorType { dtype: Dtype::parse(&spec.dtype)?, shape })
}

/// A part, once booleans have been seen to be booleans: numpy takes any byte for one, and then misbehaves.
pub fn part(array: TensorType, data: Chunks) -> Result<Part, Failure> {
    check_booleans("$", &array, &data)?;
    Ok(Part { tag: Tag::Tensor, tensor: Some(array), data })
}

fn check_booleans(path: &str, array: &TensorType, data: &Chunks) -> Result<(), Failure> {
    if array.dtype == Dtype::Bool && data.0.iter().any(|chunk| chunk.iter().any(|&byte| byte > 1)) {
        return Err(invalid(path, "expected bool elements of 0 or 1, got other bytes"));
    }
    Ok(())
}

/// Whether an array is what its parameter takes.
pub(super) fn check(spec: &ArraySpec, path: &str, array: &TensorType) -> Result<(), Failure> {
    check_shape(&array.shape).map_err(|what| invalid(path, &what))?;
    let fits = spec.shape.as_ref().is_none_or(|shape| {
        shape.len() == array.shape.len()
            && shape.iter().zip(&array.shape).all(|(axis, length)| axis.is_none_or(|axis| axis == *length))
    });
    if fits && array.dtype.name() == spec.dtype {
        return Ok(());
    }
    Err(invalid(path, &format!("expected {}, got {}", expected(spec), describe(array))))
}

pub(super) fn expected(spec: &ArraySpec) -> String {
    match &spec.shape {
        None => format!("{} of any shape", spec.dtype),
        Some(axes) => {
            let axes: Vec<String> =
                axes.iter().map(|axis| axis.map_or_else(|| "any".to_owned(), |length| length.to_string())).collect();
            format!("{} of shape ({})", spec.dtype, axes.join(", "))
        }
    }
}

pub(super) fn describe(array: &TensorType) -> String {
    let axes: Vec<String> = array.shape.iter().map(u64::to_string).collect();
    format!("{} of shape ({})", array.dtype.name(), axes.join(", "))
}
