//! Values of a program as parts of a call, and answers as what Python makes values of.

use crate::buffer::{Tensor, lend_bytes, parsed_bytes};
use jitney_core::tables::outcome::Outcome;
use jitney_server::engine::program_values::Parts;
use jitney_server::engine::reply::{PartValues, ReplyEvent};
use jitney_server::values::answer::{Answer, Failure, OutputPart};
use jitney_server::values::call::Part;
use jitney_server::values::call_id::CallId;
use jitney_server::values::chunks::Chunks;
use jitney_server::values::tensor::{Dtype, Tag, TensorType};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use smallvec::{SmallVec, smallvec};
use std::task::Waker;

/// The tag of a failure. It is none of the numbers of value tags.
pub(crate) const FAILED: u8 = 255;
/// What an answer is when it is several arrays by name.
pub(crate) const NAMED: u8 = 254;
/// The end of an answer in parts.
const ENDED: u8 = 252;

/// The parts of one item. `data` is a str, an object with a buffer, or for arrays a list of (dtype, shape, buffer).
/// `bell` as `lend_bytes` has it.
pub(crate) fn parts(tag: u8, data: &Bound<'_, PyAny>, bell: Option<&Waker>) -> PyResult<Parts> {
    let tag = Tag::from_u8(tag).ok_or_else(|| PyValueError::new_err(format!("no tag has the number {tag}")))?;
    let bytes = match tag {
        Tag::Tensor => {
            let arrays: Vec<(String, Vec<u64>, Bound<'_, PyAny>)> = data.extract()?;
            return arrays.iter().map(|(dtype, shape, buffer)| array(dtype, shape, buffer, bell)).collect();
        }
        Tag::Text => bytes::Bytes::copy_from_slice(data.cast::<PyString>()?.to_str()?.as_bytes()),
        Tag::Json | Tag::Msgpack => parsed_bytes(data, bell)?,
        Tag::Bytes => lend_bytes(data, bell)?,
    };
    Ok(smallvec![Part { tag, tensor: None, data: Chunks::from(bytes) }])
}

/// An item from Python: (tag, data).
pub(crate) type RawItem<'py> = (u8, Bound<'py, PyAny>);

/// The parts of the items of one request.
pub(crate) fn all_parts(items: Vec<RawItem<'_>>, bell: Option<&Waker>) -> PyResult<Vec<Parts>> {
    items.into_iter().map(|(tag, data)| parts(tag, &data, bell)).collect()
}

fn array(dtype: &str, shape: &[u64], buffer: &Bound<'_, PyAny>, bell: Option<&Waker>) -> PyResult<Part> {
    let dtype = Dtype::parse(dtype).ok_or_else(|| PyValueError::new_err(format!("no array has the dtype {dtype}")))?;
    let tensor = Some(TensorType { dtype, shape: SmallVec::from_slice(shape) });
    Ok(Part { tag: Tag::Tensor, tensor, data: Chunks::from(lend_bytes(buffer, bell)?) })
}

/// An answer as (kind, data, media type and headers): the tag of a value, `NAMED` or `FAILED`.
pub(crate) fn raw<'py>(py: Python<'py>, id: &CallId, answer: Answer) -> PyResult<Bound<'py, PyTuple>> {
    match answer.result {
        Ok(parts) => raw_values(py, parts),
        Err(failure) => (FAILED, failed(&id.text(), &failure), None::<String>).into_pyobject(py),
    }
}

fn raw_values(py: Python<'_>, parts: PartValues) -> PyResult<Bound<'_, PyTuple>> {
    match <[OutputPart; 1]>::try_from(parts.into_vec()) {
        Ok([part]) if part.name.is_empty() => single(py, part),
        Ok([part]) => named(py, [part]),
        Err(parts) => named(py, parts),
    }
}

/// An event of an answer in parts: a part as `raw` has it, a failure as `raw` has it, or the end as (`ENDED`, (reason, tokens
/// read and written or None, the whole answer as `raw` has it or None), None).
pub(crate) fn event<'py>(py: Python<'py>, id: &CallId, event: ReplyEvent) -> PyResult<Bound<'py, PyTuple>> {
    match event {
        ReplyEvent::Part(values) => raw_values(py, values),
        ReplyEvent::End(Answer { result: Ok(values), end, .. }) => {
            let whole = if values.is_empty() { None } else { Some(raw_values(py, values)?) };
            let usage = end.as_ref().and_then(|end| end.usage).map(|usage| (usage.input, usage.output));
            let reason = end.as_ref().map_or("stop", |end| &*end.reason);
            (ENDED, (reason, usage, whole), None::<String>).into_pyobject(py)
        }
        ReplyEvent::End(failed) => raw(py, id, failed),
    }
}

/// Several answers, each as `raw` has it.
pub(crate) fn raws<'py>(py: Python<'py>, id: &CallId, answers: Vec<Answer>) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for answer in answers {
        list.append(raw(py, id, answer)?)?;
    }
    Ok(list)
}

/// One value as (tag, data, media type and headers).
fn single(py: Python<'_>, part: OutputPart) -> PyResult<Bound<'_, PyTuple>> {
    let (tag, media) = (part.tag as u8, part.media_type.as_deref().map(str::to_owned));
    (tag, value(py, part)?, media).into_pyobject(py)
}

/// Values by name: (`NAMED`, a list of (name, value as `single` has it), None).
fn named(py: Python<'_>, parts: impl IntoIterator<Item = OutputPart>) -> PyResult<Bound<'_, PyTuple>> {
    let list = PyList::empty(py);
    for part in parts {
        let name = part.name.clone();
        list.append((&*name, single(py, part)?))?;
    }
    (NAMED, list, None::<String>).into_pyobject(py)
}

fn value(py: Python<'_>, part: OutputPart) -> PyResult<Bound<'_, PyAny>> {
    if let Some(tensor) = part.tensor {
        let view = Tensor::of_answer(part.data, tensor.dtype.name(), tensor.shape.to_vec());
        return Ok(Bound::new(py, view)?.into_any());
    }
    if part.tag == Tag::Text {
        let text = std::str::from_utf8(&part.data).map_err(|error| PyValueError::new_err(error.to_string()))?;
        return Ok(PyString::new(py, text).into_any());
    }
    Ok(PyBytes::new(py, &part.data).into_any())
}

type Failed<'a> = (&'static str, &'a str, Option<&'a str>, Option<u16>, Option<f64>, &'a str);

/// (reason, detail, field, status, seconds after which to come back, id of the request)
fn failed<'a>(id: &'a str, failure: &'a Failure) -> Failed<'a> {
    let status = failure.status.filter(|_| failure.outcome != Outcome::Ok);
    let retry_after = failure.retry_after.map(|after| after.as_secs_f64());
    (failure.outcome.reason(), &failure.detail, failure.field.as_deref(), status, retry_after, id)
}
