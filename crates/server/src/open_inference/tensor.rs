//! Requests and answers as named tensors with n first: the Open Inference Protocol without its transports. REST and gRPC
//! read their requests into `Request`, split it into items here, and write what is joined here.

use crate::items::arrays::shape::AXES;
use crate::open_inference::datatype::Datatype;
use crate::values::answer::Failure;
use crate::values::chunks::Chunks;
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;

/// Lengths of the axes.
pub type Shape = SmallVec<[u64; 4]>;

/// What a request brings, or an answer gives, under one name.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Its name.
    pub name: Box<str>,
    /// Its element type.
    pub datatype: Datatype,
    /// All axes.
    pub shape: Shape,
    /// Row-major little-endian elements; of `BYTES` the length of each as four bytes, then the element.
    pub data: Chunks,
}

/// A failure whose message is `what`: the input does not fit.
pub(crate) fn refused(what: impl Into<String>) -> Failure {
    Failure::new(Outcome::InvalidInput, what)
}

/// A shape as clients write it, with as many axes as one may have.
pub fn shown<T: ToString>(shape: &[T]) -> String {
    let axes: Vec<String> = shape.iter().take(AXES).map(T::to_string).collect();
    format!("[{}{}]", axes.join(", "), if shape.len() > AXES { ", …" } else { "" })
}

/// A name in a message: it may be anything.
pub fn quoted(name: &str) -> String {
    crate::values::text::quoted(name.as_bytes())
}
