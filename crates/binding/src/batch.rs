//! A received batch as Python sees it.

use crate::buffer::{Payload, Tensor};
use crate::errors::lost;
use jitney_server::link::batch_frame::ReceivedPart;
use jitney_server::link::worker::inbox::Delivered;
use jitney_server::link::worker::link::WorkerLink;
use jitney_server::values::tensor::{Tag, TensorType};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::borrow::Cow;
use std::sync::Arc;

/// (id, trace context, name of the key, headers) of a request.
type RequestFields<'a> = (Cow<'a, str>, &'a str, &'a str, Vec<(&'a str, &'a str)>);

/// The items of one batch, in order.
#[pyclass(frozen, module = "jitney._core")]
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) delivered: Arc<Delivered>,
    pub(crate) payload: Arc<Payload>,
    pub(crate) link: WorkerLink,
    /// Places in the received batch of the items that are still wanted; the others are left out for good.
    pub(crate) kept: Vec<usize>,
}

impl Batch {
    fn parts(&self) -> impl Iterator<Item = &ReceivedPart> {
        self.kept.iter().filter_map(|&place| self.delivered.batch.items[place].parts.first())
    }
}

#[pymethods]
impl Batch {
    #[getter]
    fn id(&self) -> u64 {
        self.delivered.batch.id.0
    }

    #[getter]
    fn method(&self) -> &str {
        &self.delivered.batch.method
    }

    #[getter]
    fn ids(&self) -> Vec<u64> {
        self.kept.iter().map(|&place| self.delivered.batch.items[place].id.0).collect()
    }

    #[getter]
    fn tags<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.parts().map(|part| part.tag as u8).collect::<Vec<_>>())
    }

    #[getter]
    fn encodings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let items = self.kept.iter().map(|&place| self.delivered.batch.items[place].encoding as u8);
        PyList::new(py, items.collect::<Vec<_>>())
    }

    /// Per item: whether the caller takes the answer in parts.
    #[getter]
    fn streams(&self) -> Vec<bool> {
        self.kept.iter().map(|&place| self.delivered.batch.items[place].streams).collect()
    }

    /// Per item: a number of its group key, of a model that works in steps.
    #[getter]
    fn keys(&self) -> Vec<u64> {
        self.kept.iter().map(|&place| self.delivered.batch.items[place].key).collect()
    }

    /// Whether items came with these that are not computed, because no request waited for them any more.
    #[getter]
    fn has_left_out(&self) -> bool {
        self.kept.len() < self.delivered.batch.items.len()
    }

    /// The ids of the requests that the items belong to; empty for those without one.
    #[getter]
    fn request_ids(&self) -> Vec<Cow<'_, str>> {
        let metadata = self.kept.iter().map(|&place| self.delivered.batch.items[place].metadata.as_ref());
        metadata.map(|metadata| metadata.map_or(Cow::Borrowed(""), |metadata| metadata.request_id.text())).collect()
    }

    /// The trace context (`traceparent`) of the batch, if it has several items and one of them is traced; empty otherwise.
    #[getter]
    fn trace(&self) -> &str {
        self.delivered.batch.items.first().map_or("", |first| &first.batch_trace)
    }

    /// What the requests of the items say in addition: (id, trace context, name of the key, headers). The `tracestate` stands
    /// behind a line feed.
    fn metadata(&self) -> Vec<RequestFields<'_>> {
        let fields = |&place: &usize| -> RequestFields<'_> {
            let Some(metadata) = &self.delivered.batch.items[place].metadata else {
                return (Cow::Borrowed(""), "", "", Vec::new());
            };
            let id = metadata.request_id.text();
            let Some(further) = metadata.further.as_deref() else { return (id, "", "", Vec::new()) };
            let headers = further.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
            (id, &further.trace, &further.key_name, headers)
        };
        self.kept.iter().map(fields).collect()
    }

    fn __len__(&self) -> usize {
        self.kept.len()
    }

    fn wanted(&self) -> Vec<bool> {
        let all = self.link.wanted(&self.delivered);
        self.kept.iter().map(|&place| all[place]).collect()
    }

    /// Per item: whether the front has cancelled it. It cancels what has expired, also after the first part of an answer, which
    /// moves the deadline.
    fn cancelled(&self) -> Vec<bool> {
        let all = self.link.cancelled(&self.delivered);
        self.kept.iter().map(|&place| all[place]).collect()
    }

    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let values = self.parts().map(|part| {
            let bytes = self.payload.of_value(part);
            if part.tag != Tag::Text {
                return Ok(PyBytes::new(py, bytes).into_any());
            }
            let text = std::str::from_utf8(bytes).map_err(|error| PyValueError::new_err(error.to_string()))?;
            Ok(PyString::new(py, text).into_any())
        });
        PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
    }

    /// Gives the arrays of these items the bytes that the client sent, which the front still has.
    #[allow(clippy::needless_pass_by_value, reason = "PyO3 gives the list by value")]
    fn restore(&self, py: Python<'_>, indices: Vec<usize>) -> PyResult<()> {
        let items = &self.delivered.batch.items;
        let places = indices.iter().map(|&index| self.kept.get(index).copied());
        let places = places.collect::<Option<Vec<usize>>>().ok_or_else(|| PyValueError::new_err("no such item"))?;
        let ids: Vec<_> = places.iter().map(|&place| items[place].id).collect();
        let again =
            py.detach(|| self.link.inputs_again(self.delivered.batch.id, &ids)).map_err(|error| lost(&error))?;
        // The front sends no input of an item that has ended: no request waits for its answer.
        let mut places = places.into_iter();
        for item in &again.items {
            let Some(place) = places.find(|&place| items[place].id == item.id) else { break };
            for (part, sent) in items[place].parts.iter().zip(&item.parts) {
                self.payload.restore(py, part, &again.payload[sent.offset..sent.offset + sent.len])?;
            }
        }
        Ok(())
    }

    /// One stacked tensor if all arrays of this parameter have one type: then their bytes lie back to back.
    fn tensors(&self, param: u16) -> PyResult<Vec<Tensor>> {
        let items = self.kept.iter().map(|&place| &self.delivered.batch.items[place]);
        let parts = items.map(|item| {
            let part = item.parts.iter().find(|part| part.param == param);
            part.and_then(|part| Some((part, part.tensor.as_ref()?)))
        });
        let missing = || PyValueError::new_err(format!("an item has no array for parameter {param}"));
        let parts = parts.collect::<Option<Vec<_>>>().ok_or_else(missing)?;
        let tensor = |tensor: &TensorType, shape, offset, len, stacked| {
            Tensor::new(self.payload.clone(), tensor.dtype.name(), shape, offset..offset + len, stacked)
        };
        let back_to_back =
            parts.windows(2).all(|pair| pair[0].1 == pair[1].1 && pair[0].0.offset + pair[0].0.len == pair[1].0.offset);
        if let (true, Some((first, kind))) = (back_to_back, parts.first()) {
            let shape = [&[parts.len() as u64], &kind.shape[..]].concat();
            return Ok(vec![tensor(kind, shape, first.offset, first.len * parts.len(), true)]);
        }
        Ok(parts.iter().map(|(part, kind)| tensor(kind, kind.shape.to_vec(), part.offset, part.len, false)).collect())
    }
}
