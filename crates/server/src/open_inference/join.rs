//! The answers to the rows of one request as tensors again. There is no such thing as half an answer: if one row failed,
//! the request failed, and says which row it was.

use crate::open_inference::datatype::Datatype;
use crate::open_inference::signature::{Form, Signature, TensorSlot};
use crate::open_inference::split::of_row;
use crate::open_inference::tensor::{Shape, Tensor, quoted, shown};
use crate::open_inference::{documents, strings};
use crate::values::answer::{Answer, Failure, OutputPart};
use crate::values::chunks::Chunks;
use crate::values::tensor::Tag;
use bytes::Bytes;
use jitney_core::tables::outcome::Outcome;
use serde_json::Value;

/// The tensors of these answers, which are in the order of their rows: those of `wanted`, in its order, or all. An array
/// of one row is a slice of what its batch gave: code that keeps it for long makes a copy.
pub fn join<A>(signature: &Signature, wanted: &[Box<str>], answers: A) -> Result<Vec<Tensor>, Failure>
where
    A: IntoIterator<Item = Answer, IntoIter: ExactSizeIterator>,
{
    let answers = answers.into_iter();
    let rows = answers.len() as u64;
    let mut columns = Vec::new();
    for (row, answer) in (0..).zip(answers) {
        let parts = answer.result.map_err(|failure| of_row(failure, row, rows))?;
        if row == 0 {
            columns = begin(signature, &parts, rows == 1);
        }
        let added = add(&mut columns, &parts, row);
        added.map_err(|what| of_row(Failure::new(Outcome::InvalidOutput, what), row, rows))?;
    }
    let mut tensors: Vec<Tensor> = columns.into_iter().map(|column| column.finish(signature.batched, rows)).collect();
    if wanted.is_empty() {
        return Ok(tensors);
    }
    wanted
        .iter()
        .map(|name| {
            let place = tensors.iter().position(|tensor| tensor.name == *name);
            let place = place.ok_or_else(|| unknown(name, tensors.iter().map(|tensor| &*tensor.name)))?;
            Ok(tensors.swap_remove(place))
        })
        .collect()
}

/// The tensors of one part of an answer: those of `wanted` that a part has, or all.
pub fn part_tensors(signature: &Signature, wanted: &[Box<str>], values: &[OutputPart]) -> Result<Vec<Tensor>, Failure> {
    let mut columns = begin(signature, values, true);
    add(&mut columns, values, 0).map_err(|what| Failure::new(Outcome::InvalidOutput, what))?;
    let tensors = columns.into_iter().map(|column| column.finish(signature.batched, 1));
    Ok(tensors.filter(|tensor| wanted.is_empty() || wanted.contains(&tensor.name)).collect())
}

/// Outputs that one request may name: each is compared with all others, and no model has so many.
const MOST_OUTPUTS: usize = 1024;

/// Refuses outputs that the model does not give, before anything is computed for them.
pub fn check_wanted(signature: &Signature, wanted: &[Box<str>]) -> Result<(), Failure> {
    if wanted.len() > MOST_OUTPUTS {
        let detail = format!("the request names {} outputs, at most {MOST_OUTPUTS} are taken", wanted.len());
        return Err(Failure::new(Outcome::TooLarge, detail));
    }
    let gives_anything = signature.gives_anything || signature.part.as_ref().is_some_and(|part| part.gives_anything);
    for (place, name) in wanted.iter().enumerate() {
        if !gives_anything && !signature.named_outputs().any(|slot| slot.name == *name) {
            return Err(unknown(name, signature.named_outputs().map(|slot| &*slot.name)));
        }
        if wanted[..place].contains(name) {
            let detail = format!("output {} is asked for twice; ask once", quoted(name));
            return Err(Failure::new(Outcome::InvalidRequest, detail));
        }
    }
    Ok(())
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let known: Vec<&str> = known.collect();
    let detail = format!("there is no output {}; the outputs are {}", quoted(name), known.join(", "));
    Failure::new(Outcome::InvalidRequest, detail)
}

/// One tensor that is being joined.
struct Column {
    name: Box<str>,
    datatype: Datatype,
    source: Source,
    /// Those of one row.
    axes: Option<Shape>,
    data: Vec<u8>,
    /// What there is to join if there is one row only, and it need not be copied.
    whole: Option<Bytes>,
    is_single: bool,
}

/// Where in an answer the rows of a column are.
enum Source {
    /// This part of the answer.
    Part(usize),
    /// The document that the answer is.
    Document(TensorSlot),
    /// A field of it.
    Field(TensorSlot),
}

/// Columns for what the first answer is made of.
fn begin(signature: &Signature, parts: &[OutputPart], is_single: bool) -> Vec<Column> {
    let column = |name: &str, datatype, source| Column {
        name: name.into(),
        datatype,
        source,
        axes: None,
        data: Vec::new(),
        whole: None,
        is_single,
    };
    if let [part] = parts
        && part.tag == Tag::Json
        && signature.outputs.iter().all(|slot| matches!(slot.form, Form::Value(_)))
    {
        let source = |slot: &TensorSlot| {
            let slot = slot.clone();
            if signature.gives_fields { Source::Field(slot) } else { Source::Document(slot) }
        };
        let of = |slot: &TensorSlot| column(&slot.name, slot.datatype().unwrap_or(Datatype::Bytes), source(slot));
        return signature.outputs.iter().map(of).collect();
    }
    let mut columns = Vec::with_capacity(parts.len());
    for (place, part) in parts.iter().enumerate() {
        let datatype = part.tensor.as_ref().map_or(Datatype::Bytes, |array| Datatype::Fixed(array.dtype));
        let unnamed = signature.outputs.first().map_or("output", |slot| &slot.name);
        columns.push(column(if part.name.is_empty() { unnamed } else { &part.name }, datatype, Source::Part(place)));
    }
    columns
}

fn add(columns: &mut [Column], parts: &[OutputPart], row: u64) -> Result<(), String> {
    let document: Option<Value> = match columns.first().map(|column| &column.source) {
        Some(Source::Document(_) | Source::Field(_)) => {
            let part = parts.first().filter(|part| part.tag == Tag::Json).ok_or_else(|| different(row))?;
            Some(serde_json::from_slice(&part.data).map_err(|error| format!("the answer is not JSON: {error}"))?)
        }
        _ => None,
    };
    if document.is_none() && columns.len() != parts.len() {
        return Err(different(row));
    }
    for column in columns {
        let named = quoted(&column.name);
        let axes = column.add(parts, document.as_ref(), row).map_err(|what| format!("output {named}: {what}"))?;
        match &column.axes {
            None => column.axes = Some(axes),
            Some(first) if *first == axes => {}
            Some(first) => {
                return Err(format!(
                    "output {named}: its shape is {}, that of the rows before it {}, and one tensor cannot hold both; send \
                     the rows in requests of their own",
                    shown(&axes),
                    shown(first)
                ));
            }
        }
    }
    Ok(())
}

fn different(row: u64) -> String {
    format!("the answer to row {row} is of another kind than those before it; send the rows in requests of their own")
}

impl Column {
    /// Takes the value of one row; what comes back are its axes.
    fn add(&mut self, parts: &[OutputPart], document: Option<&Value>, row: u64) -> Result<Shape, String> {
        let slot = match &self.source {
            Source::Part(place) => return self.add_part(&parts[*place], row),
            Source::Document(slot) | Source::Field(slot) => slot,
        };
        let Form::Value(nested) = &slot.form else { return Err(different(row)) };
        let document = document.unwrap_or(&Value::Null);
        let value = match self.source {
            // What a struct leaves out is what it has by default, which only the model knows.
            Source::Field(_) => document.get(&*slot.name).unwrap_or(&Value::Null),
            _ => document,
        };
        let mut axes = Shape::new();
        documents::read(&mut self.data, nested, value, &mut axes)?;
        // Lists inside an empty list have no length.
        axes.iter_mut().filter(|axis| **axis == u64::MAX).for_each(|axis| *axis = 0);
        Ok(if nested.axes.is_empty() { Shape::from_slice(&[1]) } else { axes })
    }

    fn add_part(&mut self, part: &OutputPart, row: u64) -> Result<Shape, String> {
        let datatype = part.tensor.as_ref().map_or(Datatype::Bytes, |array| Datatype::Fixed(array.dtype));
        if datatype != self.datatype || !part.name.is_empty() && part.name != self.name {
            return Err(different(row));
        }
        match &part.tensor {
            Some(array) if self.is_single => {
                self.whole = Some(part.data.clone());
                Ok(array.shape.clone())
            }
            Some(array) => {
                self.data.extend_from_slice(&part.data);
                Ok(array.shape.clone())
            }
            None => {
                strings::push(&mut self.data, &part.data)?;
                Ok(Shape::from_slice(&[1]))
            }
        }
    }

    fn finish(self, batched: bool, rows: u64) -> Tensor {
        let mut shape = self.axes.unwrap_or_default();
        if batched {
            shape.insert(0, rows);
        }
        let data = self.whole.unwrap_or_else(|| Bytes::from(self.data));
        Tensor { name: self.name, datatype: self.datatype, shape, data: Chunks::from(data) }
    }
}
