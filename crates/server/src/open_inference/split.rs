//! The tensors of one request as items: a row of the first axis is one.

use crate::items::arrays::{parameter, shape};
use crate::items::document::Document;
use crate::items::fields;
use crate::items::fields::Item;
use crate::open_inference::datatype::Datatype;
use crate::open_inference::documents;
use crate::open_inference::documents::Elements;
use crate::open_inference::signature::{Form, Nested, Signature, TensorSlot};
use crate::open_inference::strings;
use crate::open_inference::tensor::{Shape, Tensor, quoted, refused, shown};
use crate::values::answer::Failure;
use crate::values::call::{Call, Encoding, Part};
use crate::values::tensor::{Tag, TensorType};
use jitney_core::config::manifest::DeploymentManifest;
use jitney_core::queue::group_key::GroupKey;
use jitney_core::tables::outcome::Outcome;
use smallvec::{SmallVec, smallvec};

/// One call per row, in order; their terms are those of the request.
pub fn split(
    manifest: &DeploymentManifest,
    signature: &Signature,
    tensors: Vec<Tensor>,
    most_rows: usize,
) -> Result<Vec<Call>, Failure> {
    let mut given = matched(signature, tensors)?;
    let rows = rows(signature, &given, most_rows)?;
    let mut calls = Vec::with_capacity(rows as usize);
    let asks = fields::asks(manifest);
    for row in 0..rows {
        let parts = parts(signature, &mut given, row, rows)?;
        let (group, cost) = if asks { key(manifest, &parts, row, rows)? } else { (GroupKey::default(), 1) };
        calls.push(Call { group, cost, ..Call::new(parts, Encoding::Json) });
    }
    Ok(calls)
}

/// Says which row a failure is of, if there is more than one.
pub(crate) fn of_row(failure: Failure, row: u64, rows: u64) -> Failure {
    if rows <= 1 {
        return failure;
    }
    let detail = format!("row {row} of {rows}: {}; the whole request fails with it", failure.detail);
    Failure { detail, ..failure }
}

/// What was given for one slot.
struct Given<'a> {
    slot: &'a TensorSlot,
    tensor: Tensor,
    /// Its axes after the batch's.
    axes: Shape,
    /// For values: where its next element is.
    elements: Elements,
}

/// The tensors next to their slots, in the order of these; every one fits.
fn matched(signature: &Signature, tensors: Vec<Tensor>) -> Result<Vec<Given<'_>>, Failure> {
    let mut found: Vec<Option<Tensor>> = signature.inputs.iter().map(|_| None).collect();
    for tensor in tensors {
        let Some(place) = signature.inputs.iter().position(|slot| slot.name == tensor.name) else {
            let names: Vec<&str> = signature.inputs.iter().map(|slot| &*slot.name).collect();
            let what = format!("there is no input {}; the inputs are {}", quoted(&tensor.name), names.join(", "));
            return Err(refused(what));
        };
        if found[place].is_some() {
            return Err(refused(format!("input {} is there twice; send it once", quoted(&tensor.name))));
        }
        found[place] = Some(tensor);
    }
    let mut given = Vec::with_capacity(found.len());
    for (slot, tensor) in signature.inputs.iter().zip(found) {
        match tensor {
            Some(tensor) => given.push(fitting(signature, slot, tensor)?),
            None if slot.is_optional => {}
            None => return Err(refused(format!("input {} is missing", quoted(&slot.name)))),
        }
    }
    Ok(given)
}

fn fitting<'a>(signature: &Signature, slot: &'a TensorSlot, mut tensor: Tensor) -> Result<Given<'a>, Failure> {
    let wrong = |what: String| refused(format!("input {}: {what}", quoted(&slot.name)));
    let takes = match &slot.form {
        Form::Array(dtype, _) => dtype.is_some_and(|dtype| tensor.datatype == Datatype::Fixed(dtype)),
        Form::Text | Form::Bytes => tensor.datatype == Datatype::Bytes,
        Form::Value(nested) => documents::takes(nested.base, tensor.datatype),
    };
    if !takes {
        let expected = slot.datatype().map_or("nothing", Datatype::name);
        return Err(wrong(format!("the model takes {expected}, got {}", tensor.datatype.name())));
    }
    shape::check_shape(&tensor.shape).map_err(wrong)?;
    let axes = match tensor.shape.split_first() {
        _ if !signature.batched => tensor.shape.clone(),
        Some((_, axes)) => axes.into(),
        None => return Err(wrong(format!("the first axis is the batch's, but the shape is {}", shown(&tensor.shape)))),
    };
    let fits = match &slot.form {
        Form::Array(_, None) => true,
        Form::Text | Form::Bytes => matches!(axes[..], [] | [1]),
        Form::Value(nested) if nested.axes.is_empty() => matches!(axes[..], [] | [1]),
        Form::Array(_, Some(declared)) | Form::Value(Nested { axes: declared, .. }) => {
            declared.len() == axes.len()
                && declared.iter().zip(&axes).all(|(axis, length)| axis.is_none_or(|axis| axis == *length))
        }
    };
    if !fits {
        let batch = if signature.batched { vec![-1] } else { vec![] };
        let expected: Vec<String> = batch.into_iter().chain(slot.axes()).map(|axis| axis.to_string()).collect();
        return Err(wrong(format!("the model takes [{}], got {}", expected.join(", "), shown(&tensor.shape))));
    }
    check_length(&mut tensor).map_err(wrong)?;
    let elements = match slot.form {
        Form::Array(..) => Elements::new(tensor.datatype, bytes::Bytes::new()),
        _ => Elements::new(tensor.datatype, tensor.data.contiguous().clone()),
    };
    // Values and texts of one element have no axes, however they were sent.
    let axes = match &slot.form {
        Form::Value(nested) if nested.axes.is_empty() => Shape::new(),
        _ => axes,
    };
    Ok(Given { slot, tensor, axes, elements })
}

/// Whether the data is what shape and type say.
fn check_length(tensor: &mut Tensor) -> Result<(), String> {
    let shape = shown(&tensor.shape);
    match tensor.datatype {
        Datatype::Fixed(dtype) => {
            let array = TensorType { dtype, shape: tensor.shape.clone() };
            let expected = array.byte_len().ok_or_else(|| format!("no memory can hold the shape {shape}"))?;
            if expected != tensor.data.len() as u64 {
                let name = tensor.datatype.name();
                return Err(format!("{name} of shape {shape} has {expected} bytes, got {}", tensor.data.len()));
            }
            parameter::part(array, tensor.data.clone()).map(|_| ()).map_err(|failure| failure.detail)
        }
        Datatype::Bytes => {
            let count = tensor.shape.iter().try_fold(1u64, |count, &axis| count.checked_mul(axis));
            let count = count.ok_or_else(|| format!("no memory can hold the shape {shape}"))?;
            strings::check(tensor.data.contiguous(), count)
        }
    }
}

fn rows(signature: &Signature, given: &[Given], most: usize) -> Result<u64, Failure> {
    if !signature.batched {
        return Ok(1);
    }
    let Some(first) = given.first() else {
        return Err(refused("the request has no input, so its number of rows is unknown; send at least one input"));
    };
    let rows = first.tensor.shape[0];
    if let Some(other) = given.iter().find(|other| other.tensor.shape[0] != rows) {
        return Err(refused(format!(
            "the first axis is the batch's and must be the same for all inputs, but {} has {rows} rows and {} has {}",
            quoted(&first.slot.name),
            quoted(&other.slot.name),
            other.tensor.shape[0]
        )));
    }
    match rows {
        0 => Err(refused("the request has no rows; its first axis must be at least 1")),
        rows if rows > most as u64 => {
            let detail =
                format!("the request has {rows} rows, at most {most} are taken at once; send several requests");
            Err(Failure::new(Outcome::TooLarge, detail))
        }
        rows => Ok(rows),
    }
}

/// The next row of every tensor.
fn parts(signature: &Signature, given: &mut [Given], row: u64, rows: u64) -> Result<SmallVec<[Part; 1]>, Failure> {
    match given {
        [] => Ok(smallvec![json(b"{}".to_vec())]),
        [given] if matches!(given.slot.form, Form::Text | Form::Bytes) => {
            let data = given.elements.next();
            if given.slot.form == Form::Bytes {
                return Ok(smallvec![Part { tag: Tag::Bytes, tensor: None, data: data.into() }]);
            }
            std::str::from_utf8(&data).map_err(|error| wrong(given, row, rows, &documents::not_text(&error)))?;
            Ok(smallvec![Part { tag: Tag::Text, tensor: None, data: data.into() }])
        }
        given if matches!(given[0].slot.form, Form::Array(..)) => {
            Ok(given.iter_mut().map(|given| array(given, rows)).collect())
        }
        given => {
            let mut document = Vec::new();
            for (place, given) in given.iter_mut().enumerate() {
                if signature.takes_fields {
                    document.push(if place == 0 { b'{' } else { b',' });
                    // A Vec takes every byte.
                    let _ = serde_json::to_writer(&mut document, &given.slot.name);
                    document.push(b':');
                }
                if let Form::Value(nested) = &given.slot.form {
                    let axes = given.axes.clone();
                    documents::write(&mut document, nested.base, &axes, &mut given.elements)
                        .map_err(|what| wrong(given, row, rows, &what))?;
                }
            }
            if signature.takes_fields {
                document.push(b'}');
            }
            Ok(smallvec![json(document)])
        }
    }
}

fn array(given: &mut Given, rows: u64) -> Part {
    let data = &mut given.tensor.data;
    let data =
        if rows == 1 { std::mem::take(data) } else { data.split_to(row_bytes(&given.axes, given.tensor.datatype)) };
    let tensor = match given.tensor.datatype {
        Datatype::Fixed(dtype) => Some(TensorType { dtype, shape: given.axes.clone() }),
        Datatype::Bytes => None,
    };
    Part { tag: Tag::Tensor, tensor, data }
}

fn row_bytes(axes: &Shape, datatype: Datatype) -> usize {
    match datatype {
        Datatype::Fixed(dtype) => axes.iter().product::<u64>() as usize * dtype.size(),
        Datatype::Bytes => 0,
    }
}

fn json(document: Vec<u8>) -> Part {
    Part { tag: Tag::Json, tensor: None, data: bytes::Bytes::from(document).into() }
}

fn wrong(given: &Given, row: u64, rows: u64, what: &str) -> Failure {
    of_row(refused(format!("input {}: {what}", quoted(&given.slot.name))), row, rows)
}

/// What the row must share with its batch, and what it counts there: as for an item that came alone.
fn key(manifest: &DeploymentManifest, parts: &[Part], row: u64, rows: u64) -> Result<(GroupKey, u64), Failure> {
    let whole = |part: &Part| part.data.0.first().cloned().unwrap_or_default();
    let bytes;
    let item = match &parts[0] {
        part if part.tag == Tag::Json => {
            bytes = whole(part);
            Item::Document(Document::Json(&bytes), false)
        }
        part if part.tag == Tag::Text => {
            bytes = whole(part);
            Item::Text(std::str::from_utf8(&bytes).unwrap_or_default())
        }
        part if part.tag == Tag::Bytes => Item::Bytes(part.data.len()),
        _ => Item::Arrays(parts),
    };
    fields::evaluate(manifest, item).map_err(|failure| of_row(failure, row, rows))
}
