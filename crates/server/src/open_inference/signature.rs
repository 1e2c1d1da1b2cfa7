//! Which tensors a deployment takes and gives: its annotations in the words of the protocol.

use crate::base::offload::COPIED;
use crate::open_inference::datatype::Datatype;
use crate::values::tensor::Dtype;
use jitney_core::config::manifest::serde_json_value::Value;
use jitney_core::config::manifest::{ArraySpec, DeploymentManifest, InputKind, Output};

/// What a result without a name, and an input whose parameter has none, is called.
const OUTPUT: &str = "output";
const INPUT: &str = "input";
/// References that are followed in a schema: one for a definition, one for an alias of it.
const REFERENCES: usize = 4;

/// One tensor that is taken or given.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSlot {
    /// Its name.
    pub name: Box<str>,
    /// Where its values go, or come from.
    pub form: Form,
    /// Whether it may be left out.
    pub is_optional: bool,
}

/// What the rows of a tensor are to the model.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// An array: its dtype (`None`: any) and the axes of one item (`None`: of any shape; an axis of `None`: of any length).
    Array(Option<Dtype>, Option<Vec<Option<u64>>>),
    /// The item itself, as text.
    Text,
    /// The item itself, as bytes.
    Bytes,
    /// A value in a document: the item itself, or one of its fields.
    Value(Nested),
}

/// A value in a document that tensors can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nested {
    /// What its elements are.
    pub base: Base,
    /// The lengths of the lists around them; an axis of `None` is of any length.
    pub axes: Vec<Option<u64>>,
}

/// Elements of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// a string
    Text,
    /// bytes, which JSON holds as base64
    Base64,
    /// an integer
    Int,
    /// any number
    Float,
    /// a boolean
    Bool,
    /// anything else, as JSON
    Json,
}

/// What a deployment takes and gives.
#[allow(clippy::struct_excessive_bools, reason = "independent facts of a manifest")]
#[derive(Clone, Debug)]
pub struct Signature {
    /// Its inputs, in the order of the parameters, or of the names of the fields.
    pub inputs: Vec<TensorSlot>,
    /// Its outputs.
    pub outputs: Vec<TensorSlot>,
    /// Whether the fields of an item, or of an answer, are separate tensors.
    pub takes_fields: bool,
    /// See `takes_fields`.
    pub gives_fields: bool,
    /// Whether only an answer shows which outputs there are.
    pub gives_anything: bool,
    /// Whether the first axis of every tensor is the batch's.
    pub batched: bool,
    /// What a part of an answer gives, of a model that answers in parts. It takes nothing.
    pub part: Option<Box<Signature>>,
}

/// A row takes its time whatever it is made of; from so many bytes on that is little compared with copying them.
const LARGE_ROW: u64 = 4096;

impl Signature {
    /// How much work it is to make items of so many bytes of tensors, in bytes that are parsed: large arrays are only copied.
    pub(crate) fn weight(&self, bytes: usize) -> usize {
        let is_large = |slot: &TensorSlot| match &slot.form {
            Form::Array(Some(dtype), Some(axes)) => {
                let elements = axes.iter().try_fold(1, |all: u64, axis| all.checked_mul((*axis)?));
                elements.is_some_and(|elements| elements.saturating_mul(dtype.size() as u64) >= LARGE_ROW)
            }
            _ => false,
        };
        if self.inputs.iter().all(is_large) { bytes / COPIED } else { bytes }
    }

    /// What an answer or a part of it may have under each name. A part comes first: clients of such models read parts.
    pub fn named_outputs(&self) -> impl Iterator<Item = &TensorSlot> {
        let parts = self.part.as_ref().map_or(&[][..], |part| &part.outputs);
        let others = self.outputs.iter().filter(|slot| parts.iter().all(|part| part.name != slot.name));
        parts.iter().chain(others)
    }

    /// That of a deployment.
    pub fn of(manifest: &DeploymentManifest) -> Signature {
        let input = &manifest.input;
        let name = if input.name.is_empty() { INPUT } else { &input.name };
        let one = |form| vec![TensorSlot { name: name.into(), form, is_optional: false }];
        let taken = fields(&input.schema, End::Input).filter(|_| input.kind == InputKind::Object);
        let takes_fields = taken.is_some();
        let inputs = match input.kind {
            InputKind::Text => one(Form::Text),
            InputKind::Bytes | InputKind::Image => one(Form::Bytes),
            InputKind::Arrays => input.arrays.iter().map(|spec| array(spec, INPUT)).collect(),
            InputKind::Object => taken.unwrap_or_else(|| one(Form::Value(value(&input.schema, &input.schema)))),
        };
        let batched = manifest.options.batched;
        let part = manifest.output.part.as_ref().map(|part| Box::new(Signature::giving(part, batched)));
        Signature { inputs, takes_fields, part, ..Signature::giving(&manifest.output, batched) }
    }

    /// One that takes nothing and gives this.
    fn giving(output: &Output, batched: bool) -> Signature {
        let given = fields(&output.schema, End::Output).filter(|_| output.kind == "object");
        let gives_fields = given.is_some();
        let single = |form| vec![TensorSlot { name: OUTPUT.into(), form, is_optional: false }];
        let outputs = match output.kind.as_str() {
            "array" | "arrays" if !output.arrays.is_empty() => {
                output.arrays.iter().map(|spec| array(spec, OUTPUT)).collect()
            }
            "text" => single(Form::Text),
            "bytes" | "image" => single(Form::Bytes),
            _ => given.unwrap_or_else(|| single(Form::Value(value(&output.schema, &output.schema)))),
        };
        let gives_anything = output.kind == "any";
        Signature { inputs: vec![], outputs, takes_fields: false, gives_fields, gives_anything, batched, part: None }
    }
}

impl TensorSlot {
    /// Its element type; `None` if only an answer shows it.
    pub fn datatype(&self) -> Option<Datatype> {
        match &self.form {
            Form::Array(dtype, _) => dtype.map(Datatype::Fixed),
            Form::Text | Form::Bytes => Some(Datatype::Bytes),
            Form::Value(value) => Some(value.base.datatype()),
        }
    }

    /// The axes of one item, as the protocol says them: -1 is open. A shape that is open in rank is said to have one axis.
    pub fn axes(&self) -> Vec<i64> {
        let open = |axis: &Option<u64>| axis.map_or(-1, |length| i64::try_from(length).unwrap_or(-1));
        match &self.form {
            Form::Array(_, None) => vec![-1],
            Form::Text | Form::Bytes => vec![1],
            // A scalar has one axis of length 1: Triton's configurations cannot say that there is none.
            Form::Value(Nested { axes, .. }) if axes.is_empty() => vec![1],
            Form::Array(_, Some(axes)) | Form::Value(Nested { axes, .. }) => axes.iter().map(open).collect(),
        }
    }
}

impl Base {
    /// What such elements are in tensors.
    pub fn datatype(self) -> Datatype {
        match self {
            Base::Text | Base::Base64 | Base::Json => Datatype::Bytes,
            Base::Int => Datatype::Fixed(Dtype::Int64),
            Base::Float => Datatype::Fixed(Dtype::Float64),
            Base::Bool => Datatype::Fixed(Dtype::Bool),
        }
    }
}

fn array(spec: &ArraySpec, unnamed: &str) -> TensorSlot {
    let name = if spec.name.is_empty() { unnamed } else { &spec.name };
    let form = Form::Array(Dtype::parse(&spec.dtype), spec.shape.clone());
    TensorSlot { name: name.into(), form, is_optional: false }
}

fn member<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    match schema {
        Value::Object(members) => members.get(key),
        _ => None,
    }
}

fn list<'a>(schema: &'a Value, key: &str) -> Option<&'a [Value]> {
    match member(schema, key) {
        Some(Value::Array(values)) => Some(values),
        _ => None,
    }
}

fn text<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    match member(schema, key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Where a schema is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Input,
    Output,
}

/// One slot per field, if this is the schema of a struct.
fn fields(root: &Value, end: End) -> Option<Vec<TensorSlot>> {
    let schema = resolved(root, root);
    let Some(Value::Object(properties)) = member(schema, "properties") else { return None };
    let required = list(schema, "required").unwrap_or_default();
    let slots = properties.iter().map(|(name, schema)| TensorSlot {
        name: name.as_str().into(),
        form: Form::Value(value(root, if end == End::Input { without_null(schema) } else { schema })),
        is_optional: !required.iter().any(|known| matches!(known, Value::String(known) if known == name)),
    });
    Some(slots.collect())
}

/// What a reference stands for.
fn resolved<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..REFERENCES {
        let name = text(schema, "$ref").and_then(|reference| reference.strip_prefix("#/$defs/"));
        match name.and_then(|name| member(member(root, "$defs")?, name)) {
            Some(found) => schema = found,
            None => break,
        }
    }
    schema
}

/// The only length that a list of this schema may have.
fn length(schema: &Value) -> Option<u64> {
    match (member(schema, "minItems"), member(schema, "maxItems")) {
        (Some(Value::Int(least)), Some(Value::Int(most))) if least == most => u64::try_from(*least).ok(),
        _ => None,
    }
}

/// What values of this schema are in tensors. What may be null, or one of several kinds, is JSON in itself.
fn value(root: &Value, schema: &Value) -> Nested {
    let schema = array_of(resolved(root, schema));
    let base = match (text(schema, "type"), list(schema, "enum")) {
        (Some("string"), _) if text(schema, "contentEncoding") == Some("base64") => Base::Base64,
        (Some("string"), _) => Base::Text,
        (Some("integer"), _) => Base::Int,
        (Some("number"), _) => Base::Float,
        (Some("boolean"), _) => Base::Bool,
        (Some("array"), _) => {
            return match member(schema, "items").map(|items| value(root, items)) {
                Some(mut inner) if inner.base != Base::Json => {
                    inner.axes.insert(0, length(schema));
                    inner
                }
                _ => Nested { base: Base::Json, axes: vec![] },
            };
        }
        (None, Some(values)) if values.iter().all(|value| matches!(value, Value::String(_))) => Base::Text,
        (None, Some(values)) if values.iter().all(|value| matches!(value, Value::Int(_))) => Base::Int,
        _ => Base::Json,
    };
    Nested { base, axes: vec![] }
}

/// The schema of an array as lists: a field that is an array says first of all how these are.
fn array_of(schema: &Value) -> &Value {
    let lists = member(schema, "x-array").and_then(|_| list(schema, "anyOf")?.first());
    lists.filter(|lists| text(lists, "type").is_some()).unwrap_or(schema)
}

/// The schema of an input without its null: a tensor that is left out says as much.
fn without_null(schema: &Value) -> &Value {
    let Some(kinds) = list(schema, "anyOf") else { return schema };
    let mut others = kinds.iter().filter(|kind| text(kind, "type") != Some("null"));
    match (others.next(), others.next()) {
        (Some(only), None) => only,
        _ => schema,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_arrays_weigh_less_than_their_bytes() {
        let slot = |form| TensorSlot { name: "x".into(), form, is_optional: false };
        let weighs = |forms: Vec<Form>| {
            let inputs = forms.into_iter().map(slot).collect();
            let flags = Signature {
                inputs,
                outputs: vec![],
                takes_fields: false,
                gives_fields: false,
                gives_anything: false,
                batched: true,
                part: None,
            };
            flags.weight(1 << 20)
        };
        let array = |axes: &[Option<u64>]| Form::Array(Some(Dtype::Float32), Some(axes.to_vec()));
        assert_eq!(weighs(vec![array(&[Some(3), Some(1024)])]), (1 << 20) / COPIED);
        for forms in [
            vec![array(&[Some(7)])],
            vec![array(&[None, Some(1024)])],
            vec![Form::Text],
            vec![array(&[Some(1024)]), Form::Bytes],
            vec![Form::Array(None, Some(vec![Some(4096)]))],
        ] {
            assert_eq!(weighs(forms.clone()), 1 << 20, "{forms:?}");
        }
    }

    fn nested(schema: &str) -> (Base, Vec<Option<u64>>) {
        let root: Value = serde_json::from_str(&format!(
            r#"{{"properties": {{"x": {schema}}}, "$defs": {{"Color": {{"enum": ["red"]}}, "Point": {{"type": "object"}}}}}}"#
        ))
        .unwrap();
        match fields(&root, End::Input).unwrap().remove(0).form {
            Form::Value(Nested { base, axes }) => (base, axes),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fields_are_what_their_schema_says() {
        for (schema, base, axes) in [
            (r#"{"type": "string"}"#, Base::Text, vec![]),
            (r#"{"type": "string", "contentEncoding": "base64"}"#, Base::Base64, vec![]),
            (r#"{"anyOf": [{"type": "integer"}, {"type": "null"}]}"#, Base::Int, vec![]),
            (r#"{"anyOf": [{"type": "integer"}, {"type": "string"}]}"#, Base::Json, vec![]),
            (
                r#"{"type": "array", "items": {"type": "array", "items": {"type": "number"}}}"#,
                Base::Float,
                vec![None, None],
            ),
            (
                r#"{"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 3}"#,
                Base::Int,
                vec![Some(3)],
            ),
            (r##"{"type": "array", "items": {"$ref": "#/$defs/Point"}}"##, Base::Json, vec![]),
            (r##"{"$ref": "#/$defs/Color"}"##, Base::Text, vec![]),
            (r##"{"$ref": "#/$defs/Nothing"}"##, Base::Json, vec![]),
            (r#"{"enum": [1, 2]}"#, Base::Int, vec![]),
            (
                r#"{"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}], "x-array": "float32"}"#,
                Base::Float,
                vec![None],
            ),
            ("true", Base::Json, vec![]),
        ] {
            assert_eq!(nested(schema), (base, axes), "{schema}");
        }
    }

    #[test]
    fn fields_stand_in_the_order_of_their_struct() {
        let root: Value = serde_json::from_str(r#"{"properties": {"product": {}, "total": {}, "note": {}}}"#).unwrap();
        let names: Vec<_> = fields(&root, End::Output).unwrap().into_iter().map(|slot| slot.name).collect();
        assert_eq!(names.join(" "), "product total note");
        assert_eq!(serde_json::to_string(&root).unwrap(), r#"{"properties":{"product":{},"total":{},"note":{}}}"#);
    }

    #[test]
    fn a_value_of_an_answer_that_may_be_null_is_json() {
        let root = serde_json::from_str(r#"{"properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}"#);
        let slots = fields(&root.unwrap(), End::Output).unwrap();
        assert_eq!(slots[0].datatype(), Some(Datatype::Bytes));
    }
}
