//! The body of an infer request: JSON, and behind it the tensors that the JSON says are binary.

use crate::items::arrays::shape::AXES;
use crate::items::arrays::{lists, shape};
use crate::items::document::{Document, json_fault};
use crate::open_inference::datatype::Datatype;
use crate::open_inference::request::{InferRequest, Parameter, check_of_tensor};
use crate::open_inference::signature::{Form, Signature};
use crate::open_inference::strings;
use crate::open_inference::tensor::{Shape, Tensor, quoted, shown};
use crate::protocols::request::object::Object;
use crate::values::answer::Failure;
use crate::values::chunks::Chunks;
use crate::values::tensor::Dtype;
use crate::values::text::parser_message;
use bytes::Bytes;
use jitney_core::config::manifest::ArraySpec;
use jitney_core::tables::outcome::Outcome;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// A request, and which of its outputs come back as bytes behind the JSON.
#[derive(Debug, Default)]
pub(crate) struct Infer {
    pub(crate) request: InferRequest,
    pub(crate) binary: Binary,
}

/// Which outputs come back as bytes: what is said of one wins over what is said of all.
#[derive(Debug, Default)]
pub(crate) struct Binary {
    all: bool,
    single: Vec<(Box<str>, bool)>,
}

impl Binary {
    pub(crate) fn wants(&self, output: &str) -> bool {
        self.single.iter().find(|(name, _)| **name == *output).map_or(self.all, |(_, binary)| *binary)
    }
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(default, deserialize_with = "or_null")]
    id: String,
    #[serde(default, deserialize_with = "or_null")]
    parameters: Named,
    #[serde(borrow, default)]
    inputs: Vec<Object<Input<'a>>>,
    #[serde(default, deserialize_with = "or_null")]
    outputs: Vec<Object<Output>>,
}

#[derive(Deserialize)]
struct Input<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    #[serde(deserialize_with = "axes")]
    shape: Vec<u64>,
    #[serde(default, deserialize_with = "or_null")]
    parameters: Named,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Output {
    name: Box<str>,
    #[serde(default, deserialize_with = "or_null")]
    parameters: Named,
}

/// Parameters that a request, or one of its tensors, may have: each takes far more memory than it took in the body.
const MOST_PARAMETERS: usize = 1024;

/// Parameters by name.
#[derive(Default)]
struct Named(BTreeMap<String, Parameter>);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Named, D::Error> {
        deserializer.deserialize_map(Entries)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Named;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object of parameters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Named, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some((name, value)) = access.next_entry()? {
            if entries.len() == MOST_PARAMETERS {
                return Err(A::Error::custom(format!("more than {MOST_PARAMETERS} parameters")));
            }
            entries.insert(name, value);
        }
        Ok(Named(entries))
    }
}

/// A shape. It is bounded while it is read: each axis takes eight bytes and may have taken two.
fn axes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    deserializer.deserialize_seq(Axes)
}

struct Axes;

impl<'de> Visitor<'de> for Axes {
    type Value = Vec<u64>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a list of axes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Vec<u64>, A::Error> {
        let mut axes = Vec::new();
        while let Some(axis) = access.next_element()? {
            if axes.len() == AXES {
                return Err(A::Error::custom(format!("a shape has more than {AXES} axes")));
            }
            axes.push(axis);
        }
        Ok(axes)
    }
}

/// Clients write `null` for what they leave out.
fn or_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads a body. `json_bytes`: how many of them are JSON; `None` if all are. `most` bounds what JSON may grow to.
pub(crate) fn read(
    signature: &Signature,
    mut body: Chunks,
    json_bytes: Option<usize>,
    most: usize,
) -> Result<Infer, Failure> {
    let length = body.len();
    if json_bytes == Some(0) {
        return raw(signature, body);
    }
    let mut head = match json_bytes {
        Some(json_bytes) if json_bytes > length => {
            let what = format!("the header says that its JSON has {json_bytes} bytes, the whole body has {length}");
            return Err(malformed(&what));
        }
        Some(json_bytes) => body.split_to(json_bytes),
        None => std::mem::take(&mut body),
    };
    let json: &[u8] = head.contiguous();
    let Object(Head { id, parameters: Named(parameters), inputs, outputs }) = serde_json::from_slice(json)
        .map_err(|error| malformed(&format!("its JSON is not an inference request: {}", json_fault(json, &error))))?;
    let mut room = most;
    let mut tensors = Vec::with_capacity(inputs.len());
    for Object(input) in inputs {
        tensors.push(tensor(input, &mut body, &mut room)?);
    }
    if !body.is_empty() {
        let what = format!("{} bytes follow those that its inputs claim with binary_data_size", body.len());
        return Err(malformed(&what));
    }
    let all = parameters.get("binary_data_output") == Some(&Parameter::Bool(true));
    let mut binary = Binary { all, single: Vec::new() };
    let mut wanted = Vec::with_capacity(outputs.len());
    for Object(Output { name, parameters: Named(parameters) }) in outputs {
        check_of_tensor(&name, parameters.keys().map(String::as_str), &["binary_data"])?;
        match parameters.get("binary_data") {
            None => {}
            Some(Parameter::Bool(own)) => binary.single.push((name.clone(), *own)),
            Some(_) => return Err(wrong(&format!("output {}: binary_data must be true or false", quoted(&name)))),
        }
        wanted.push(name);
    }
    let parameters = parameters.into_iter().collect();
    Ok(Infer { request: InferRequest { id, parameters, inputs: tensors, outputs: wanted }, binary })
}

fn malformed(what: &str) -> Failure {
    Failure::new(Outcome::MalformedBody, format!("the body cannot be read: {what}"))
}

fn wrong(what: &str) -> Failure {
    Failure::new(Outcome::InvalidRequest, what)
}

fn of_input(name: &str, what: &str) -> Failure {
    Failure::new(Outcome::InvalidInput, format!("input {}: {what}", quoted(name)))
}

/// A body that is nothing but the one input of the model, as one row.
fn raw(signature: &Signature, mut body: Chunks) -> Result<Infer, Failure> {
    let [slot] = &signature.inputs[..] else {
        let what = format!(
            "a body without JSON is the one input of a model, but this model has {}; send JSON that names them",
            signature.inputs.len()
        );
        return Err(wrong(&what));
    };
    let datatype = slot.datatype().unwrap_or(Datatype::Bytes);
    let mut shape: Shape = if signature.batched { Shape::from_slice(&[1]) } else { Shape::new() };
    match datatype {
        Datatype::Bytes => {
            let mut element = Vec::with_capacity(body.len() + 4);
            strings::push(&mut element, body.contiguous()).map_err(|what| of_input(&slot.name, &what))?;
            body = Bytes::from(element).into();
            shape.extend(slot.axes().iter().map(|_| 1));
        }
        Datatype::Fixed(dtype) => {
            let open = "its shape is open in more than one axis; send JSON that says it";
            let axes = match &slot.form {
                Form::Array(_, Some(axes)) => axes.clone(),
                Form::Array(_, None) => return Err(of_input(&slot.name, open)),
                _ => slot.axes().iter().map(|&axis| u64::try_from(axis).ok()).collect(),
            };
            let known: u64 = axes.iter().flatten().product::<u64>() * dtype.size() as u64;
            if axes.iter().filter(|axis| axis.is_none()).count() > 1 {
                return Err(of_input(&slot.name, open));
            }
            shape.extend(axes.iter().map(|axis| axis.unwrap_or(body.len() as u64 / known.max(1))));
        }
    }
    let inputs = vec![Tensor { name: slot.name.clone(), datatype, shape, data: body }];
    Ok(Infer {
        request: InferRequest { inputs, ..InferRequest::default() },
        binary: Binary { all: true, single: vec![] },
    })
}

/// One input: out of the JSON, or the next of the bytes behind it.
fn tensor(input: Input<'_>, binary: &mut Chunks, room: &mut usize) -> Result<Tensor, Failure> {
    let Input { name, datatype, shape, parameters: Named(parameters), data } = input;
    shape::check_shape(&shape).map_err(|what| of_input(&name, &what))?;
    let shape = Shape::from_vec(shape);
    check_of_tensor(&name, parameters.keys().map(String::as_str), &["binary_data_size"])?;
    let datatype = Datatype::parse(&datatype).ok_or_else(|| {
        let what =
            format!("the datatype {} is not taken; known are {}", quoted(&datatype), Datatype::names().join(", "));
        of_input(&name, &what)
    })?;
    let data = match (parameters.get("binary_data_size"), data) {
        (Some(_), Some(_)) => return Err(of_input(&name, "it has data and binary_data_size; send one of them")),
        (None, None) => return Err(of_input(&name, "it has neither data nor binary_data_size")),
        (Some(size), None) => {
            let whole = if let Parameter::Int(size) = size { usize::try_from(*size).ok() } else { None };
            let size = whole.ok_or_else(|| of_input(&name, "binary_data_size must be a whole number"))?;
            if size > binary.len() {
                let what = format!("binary_data_size is {size}, but only {} bytes are left in the body", binary.len());
                return Err(of_input(&name, &what));
            }
            binary.split_to(size)
        }
        (None, Some(data)) => match datatype {
            Datatype::Fixed(dtype) => numbers(&name, dtype, &shape, data, *room)?,
            Datatype::Bytes => text(&name, data, *room)?,
        },
    };
    *room = room.saturating_sub(data.len());
    Ok(Tensor { name: name.into(), datatype, shape, data })
}

/// Numbers, nested as the shape is or in one list.
fn numbers(name: &str, dtype: Dtype, shape: &Shape, data: &RawValue, room: usize) -> Result<Chunks, Failure> {
    let spec = ArraySpec { name: String::new(), dtype: dtype.name().into(), shape: None, is_stacked: true };
    let document = Document::Json(data.get().as_bytes());
    let parts = lists::from_document(std::slice::from_ref(&spec), document, room).map_err(|failure| {
        let what = failure.detail.strip_prefix("$: ").unwrap_or(&failure.detail);
        Failure { field: None, detail: format!("input {}: {what}", quoted(name)), ..failure }
    })?;
    let part = parts.into_iter().next();
    let (got, data) = part.and_then(|part| Some((part.tensor?.shape, part.data))).unwrap_or_default();
    let count = shape.iter().try_fold(1u64, |count, &axis| count.checked_mul(axis));
    if got == *shape || got.len() == 1 && Some(got[0]) == count {
        return Ok(data);
    }
    Err(of_input(name, &format!("its shape is {}, its data has {}", shown(shape), shown(&got))))
}

fn text(name: &str, data: &RawValue, room: usize) -> Result<Chunks, Failure> {
    let mut strings = Strings { data: Vec::new(), room, is_full: false };
    let mut reader = serde_json::Deserializer::from_str(data.get());
    match (Level { strings: &mut strings, depth: 0 }).deserialize(&mut reader) {
        Ok(()) => Ok(Bytes::from(strings.data).into()),
        Err(_) if strings.is_full => {
            let what = format!(
                "input {}: it takes more than a body may have; send less, or raise max_body_bytes",
                quoted(name)
            );
            Err(Failure::new(Outcome::TooLarge, what))
        }
        Err(error) => Err(of_input(name, &parser_message(&error))),
    }
}

/// `BYTES` elements out of JSON: strings, nested or in one list.
struct Strings {
    data: Vec<u8>,
    room: usize,
    is_full: bool,
}

struct Level<'s> {
    strings: &'s mut Strings,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a string, since its datatype is BYTES")
    }

    fn visit_str<E: Error>(self, element: &str) -> Result<(), E> {
        let Strings { data, room, is_full } = self.strings;
        if data.len() + element.len() + 4 > *room {
            *is_full = true;
            return Err(E::custom("full"));
        }
        strings::push(data, element.as_bytes()).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Level { strings, depth } = self;
        if depth == AXES {
            return Err(A::Error::custom(format!("it has more than {AXES} axes")));
        }
        while access.next_element_seed(Level { strings: &mut *strings, depth: depth + 1 })?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests;
