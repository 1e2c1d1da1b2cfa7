//! Values in documents as elements of tensors, and back. A struct is one tensor per field.

use crate::items::document::Document;
use crate::items::{base64, half};
use crate::open_inference::datatype::Datatype;
use crate::open_inference::signature::{Base, Nested};
use crate::open_inference::strings;
use crate::open_inference::tensor::Shape;
use crate::values::tensor::Dtype;
use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;
use std::io::Write;

/// Walks over the elements of a tensor, which has as many as are asked for.
pub(crate) struct Elements {
    datatype: Datatype,
    data: Bytes,
}

impl Elements {
    pub(crate) fn new(datatype: Datatype, data: Bytes) -> Elements {
        Elements { datatype, data }
    }

    /// The next element.
    pub(crate) fn next(&mut self) -> Bytes {
        match self.datatype {
            Datatype::Bytes => strings::next(&mut self.data).unwrap_or_default(),
            Datatype::Fixed(dtype) => self.data.split_to(dtype.size().min(self.data.len())),
        }
    }
}

/// Whether elements of this type can be such values. Python's numbers have no width: every width of their kind is taken.
pub(crate) fn takes(base: Base, datatype: Datatype) -> bool {
    let Datatype::Fixed(dtype) = datatype else { return base.datatype() == Datatype::Bytes };
    let is_integer = !matches!(dtype, Dtype::Bool | Dtype::Float16 | Dtype::Float32 | Dtype::Float64);
    match base {
        Base::Text | Base::Base64 | Base::Json => false,
        Base::Int => is_integer,
        Base::Float => dtype != Dtype::Bool,
        Base::Bool => dtype == Dtype::Bool,
    }
}

/// Writes the next value as JSON: lists of these lengths around elements.
pub(crate) fn write(out: &mut Vec<u8>, base: Base, axes: &[u64], elements: &mut Elements) -> Result<(), String> {
    let Some((&length, inner)) = axes.split_first() else {
        let datatype = elements.datatype;
        return write_element(out, base, datatype, &elements.next());
    };
    out.push(b'[');
    for place in 0..length {
        if place > 0 {
            out.push(b',');
        }
        write(out, base, inner, elements)?;
    }
    out.push(b']');
    Ok(())
}

fn write_element(out: &mut Vec<u8>, base: Base, datatype: Datatype, element: &[u8]) -> Result<(), String> {
    match (base, datatype) {
        (Base::Text, _) => {
            let text = std::str::from_utf8(element).map_err(|error| not_text(&error))?;
            serde_json::to_writer(out, text).map_err(|error| error.to_string())
        }
        (Base::Base64, _) => {
            base64::write(out, element);
            Ok(())
        }
        (Base::Json, _) => {
            // It stands inside of a document of ours, so it must be one value and no more.
            let whole = Document::Json(element).read(std::marker::PhantomData::<crate::items::skip::Skip>);
            whole.map_err(|failure| failure.detail.replace("the body", "the element"))?;
            out.extend_from_slice(element);
            Ok(())
        }
        (_, Datatype::Fixed(dtype)) => write_number(out, dtype, element),
        (_, Datatype::Bytes) => Err("it is BYTES, not numbers".into()),
    }
}

fn write_number(out: &mut Vec<u8>, dtype: Dtype, element: &[u8]) -> Result<(), String> {
    let (integer, float) = number(dtype, element);
    // A Vec takes every byte.
    if dtype == Dtype::Bool {
        let _ = write!(out, "{}", integer != 0);
    } else if let Some(float) = float {
        if !float.is_finite() {
            return Err(format!(
                "{float} cannot be said in the JSON that this field is read from; send a finite number"
            ));
        }
        out.extend_from_slice(zmij::Buffer::new().format_finite(float).as_bytes());
    } else {
        out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    }
    Ok(())
}

/// An element as an integer, or as a float if it is one.
fn number(dtype: Dtype, element: &[u8]) -> (i128, Option<f64>) {
    macro_rules! read {
        ($kind:ty) => {
            <$kind>::from_le_bytes(element.try_into().unwrap_or_default())
        };
    }
    match dtype {
        Dtype::Bool | Dtype::Uint8 => (read!(u8).into(), None),
        Dtype::Uint16 => (read!(u16).into(), None),
        Dtype::Uint32 => (read!(u32).into(), None),
        Dtype::Uint64 => (read!(u64).into(), None),
        Dtype::Int8 => (read!(i8).into(), None),
        Dtype::Int16 => (read!(i16).into(), None),
        Dtype::Int32 => (read!(i32).into(), None),
        Dtype::Int64 => (read!(i64).into(), None),
        Dtype::Float16 => (0, Some(half::to_f32(read!(u16)).into())),
        Dtype::Float32 => (0, Some(read!(f32).into())),
        Dtype::Float64 => (0, Some(read!(f64))),
    }
}

pub(crate) fn not_text(error: &std::str::Utf8Error) -> String {
    format!("its text is not UTF-8: byte {} is wrong; encode it as UTF-8", error.valid_up_to())
}

/// Appends a value of an answer to the elements of its tensor; `axes` becomes the lengths of its lists.
pub(crate) fn read(out: &mut Vec<u8>, nested: &Nested, value: &Value, axes: &mut Shape) -> Result<(), String> {
    axes.resize(nested.axes.len(), u64::MAX);
    read_at(out, nested.base, value, axes)
}

/// `axes` are those from here on; those that no list has shown yet are `u64::MAX`.
fn read_at(out: &mut Vec<u8>, base: Base, value: &Value, axes: &mut [u64]) -> Result<(), String> {
    let Some((length, inner)) = axes.split_first_mut() else { return read_element(out, base, value) };
    let Value::Array(values) = value else { return Err(format!("it is declared as a list, but is {}", kind(value))) };
    if *length == u64::MAX {
        *length = values.len() as u64;
    }
    if *length != values.len() as u64 {
        return Err(format!(
            "it has lists of {length} and of {} elements; tensors have one length per axis",
            values.len()
        ));
    }
    values.iter().try_for_each(|value| read_at(out, base, value, inner))
}

fn read_element(out: &mut Vec<u8>, base: Base, value: &Value) -> Result<(), String> {
    let wrong = || format!("it is declared as {}, but is {}", base.datatype().name(), kind(value));
    match base {
        Base::Json => strings::push(out, value.to_string().as_bytes())?,
        Base::Text => strings::push(out, value.as_str().ok_or_else(wrong)?.as_bytes())?,
        Base::Base64 => {
            let text = value.as_str().ok_or_else(wrong)?;
            strings::push(out, &STANDARD.decode(text).map_err(|_| wrong())?)?;
        }
        Base::Int => out.extend_from_slice(&value.as_i64().ok_or_else(wrong)?.to_le_bytes()),
        Base::Float => out.extend_from_slice(&value.as_f64().ok_or_else(wrong)?.to_le_bytes()),
        Base::Bool => out.push(u8::from(value.as_bool().ok_or_else(wrong)?)),
    }
    Ok(())
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "a boolean".into(),
        Value::Number(number) => number.to_string(),
        Value::String(_) => "a string".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round(base: Base, depth: usize, document: &str) -> Result<(String, Shape), String> {
        let (mut data, mut axes) = (Vec::new(), Shape::new());
        read(
            &mut data,
            &Nested { base, axes: vec![None; depth] },
            &serde_json::from_str(document).unwrap(),
            &mut axes,
        )?;
        let mut elements = Elements::new(base.datatype(), data.into());
        let mut written = Vec::new();
        write(&mut written, base, &axes, &mut elements)?;
        Ok((String::from_utf8(written).unwrap(), axes))
    }

    #[test]
    fn values_survive() {
        for (base, depth, document) in [
            (Base::Text, 1, r#"["a","ä\n",""]"#),
            (Base::Int, 2, "[[1,-2],[3,9223372036854775807]]"),
            (Base::Float, 0, "0.1"),
            (Base::Bool, 1, "[true,false]"),
            (Base::Base64, 0, r#""AAE=""#),
            (Base::Json, 0, r#"{"a":[1,null]}"#),
            (Base::Int, 1, "[]"),
        ] {
            assert_eq!(round(base, depth, document).unwrap().0, document);
        }
    }

    #[test]
    fn what_tensors_cannot_hold_is_refused() {
        for (base, depth, document) in [
            (Base::Int, 2, "[[1],[2,3]]"),
            (Base::Int, 1, "3"),
            (Base::Int, 0, "1.5"),
            (Base::Text, 0, "null"),
            (Base::Base64, 0, r#""%""#),
        ] {
            assert!(round(base, depth, document).is_err(), "{document}");
        }
    }

    #[test]
    fn an_element_never_leaves_its_place_in_the_document() {
        for element in [r#"1,"width":2"#, "", "1 2", "\"a", "NaN", "}"] {
            assert!(
                write_element(&mut Vec::new(), Base::Json, Datatype::Bytes, element.as_bytes()).is_err(),
                "{element}"
            );
        }
        assert!(write_element(&mut Vec::new(), Base::Text, Datatype::Bytes, b"\xff").is_err());
        assert!(write_number(&mut Vec::new(), Dtype::Float32, &f32::NAN.to_le_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn numbers_keep_their_value(value in any::<f32>().prop_filter("finite", |value| value.is_finite())) {
            let mut written = Vec::new();
            write_number(&mut written, Dtype::Float32, &value.to_le_bytes()).unwrap();
            let read: f64 = std::str::from_utf8(&written).unwrap().parse().unwrap();
            prop_assert_eq!(read.to_bits(), f64::from(value).to_bits());
        }
    }
}
