//! Tensors become items and items tensors again.

use crate::open_inference::datatype::Datatype;
use crate::open_inference::join::{check_wanted, join};
use crate::open_inference::signature::Signature;
use crate::open_inference::split::split;
use crate::open_inference::strings;
use crate::open_inference::tensor::Tensor;
use crate::values::answer::Failure;
use crate::values::answer::{Answer, OutputPart, Timing};
use crate::values::call::Call;
use crate::values::chunks::Chunks;
use crate::values::tensor::{Dtype, Tag, TensorType};
use bytes::Bytes;
use jitney_core::config::manifest::DeploymentManifest;
use jitney_core::config::options::DeploymentOptions;
use jitney_core::queue::group_key::KeyPart;
use jitney_core::tables::outcome::Outcome;
use proptest::prelude::*;
use serde_json::{Value, json};

#[allow(clippy::needless_pass_by_value, reason = "its arguments are written where it is called")]
pub(crate) fn manifest(input: Value, output: Value, more: Value) -> DeploymentManifest {
    let mut manifest = json!({
        "name": "m", "doc": "", "option_sources": {}, "group_by": [], "cost": null, "examples": [], "input": input, "output": output,
        "options": DeploymentOptions::for_test(),
    });
    for (key, value) in more.as_object().unwrap() {
        match value {
            Value::Object(inner) => inner.iter().for_each(|(name, value)| manifest[key][name] = value.clone()),
            value => manifest[key] = value.clone(),
        }
    }
    serde_json::from_value(manifest).unwrap()
}

fn arrays(specs: &[(&str, &str, Value)]) -> Value {
    let specs = specs.iter().map(|(name, dtype, shape)| json!({ "name": name, "dtype": dtype, "shape": shape }));
    json!({ "kind": "arrays", "arrays": specs.collect::<Vec<_>>(), "schema": true })
}

fn anything() -> Value {
    json!({ "kind": "any", "arrays": [], "schema": true })
}

fn prompts() -> DeploymentManifest {
    let schema = json!({
        "type": "object", "required": ["prompt"],
        "properties": {
            "prompt": { "type": "string" }, "width": { "type": "integer" },
            "sizes": { "type": "array", "items": { "type": "number" } }, "image": { "type": "string", "contentEncoding": "base64" },
            "more": { "type": "object" },
        },
    });
    let term = json!({ "source": { "field": { "name": "width", "types": ["int"], "default": 512, "literals": [] } }, "edges": null });
    manifest(
        json!({ "kind": "object", "name": "items", "arrays": [], "schema": schema.clone() }),
        json!({ "kind": "object", "arrays": [], "schema": schema }),
        json!({ "group_by": [term] }),
    )
}

fn tensor(name: &str, datatype: &str, shape: &[u64], data: Vec<u8>) -> Tensor {
    let datatype = Datatype::parse(datatype).unwrap();
    Tensor { name: name.into(), datatype, shape: shape.into(), data: Bytes::from(data).into() }
}

fn bytes(elements: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    elements.iter().for_each(|element| strings::push(&mut data, element.as_bytes()).unwrap());
    data
}

fn calls(manifest: &DeploymentManifest, tensors: Vec<Tensor>) -> Result<Vec<Call>, String> {
    split(manifest, &Signature::of(manifest), tensors, 1000).map_err(|failure| failure.detail)
}

fn first(calls: &[Call]) -> Vec<String> {
    calls.iter().map(|call| String::from_utf8(call.parts[0].data.0.concat()).unwrap()).collect()
}

fn answer(parts: impl IntoIterator<Item = OutputPart>) -> Answer {
    Answer {
        result: Ok(parts.into_iter().collect()),
        timing: Timing { batch_size: 4, ..Timing::default() },
        tokens: None,
        end: None,
    }
}

fn output(name: &str, tag: Tag, tensor: Option<(Dtype, &[u64])>, data: &[u8]) -> OutputPart {
    let tensor = tensor.map(|(dtype, shape)| TensorType { dtype, shape: shape.into() });
    OutputPart { name: name.into(), tag, tensor, media_type: None, data: Bytes::copy_from_slice(data) }
}

#[test]
fn rows_of_arrays_are_items() {
    let manifest = manifest(arrays(&[("a", "int16", json!([2])), ("b", "bool", json!([]))]), anything(), json!({}));
    let given = || vec![tensor("b", "BOOL", &[2], vec![0, 1]), tensor("a", "INT16", &[2, 2], (0..8).collect())];
    let calls = calls(&manifest, given()).unwrap();
    let parts: Vec<Vec<Vec<u8>>> =
        calls.iter().map(|call| call.parts.iter().map(|part| part.data.0.concat()).collect()).collect();
    assert_eq!(parts, [[vec![0, 1, 2, 3], vec![0]], [vec![4, 5, 6, 7], vec![1]]]);
    assert_eq!(&calls[0].parts[0].tensor.as_ref().unwrap().shape[..], [2]);
}

#[test]
fn an_axis_of_no_length_does_not_hide_a_huge_one() {
    let list = |items: Value| json!({ "type": "array", "items": items });
    let schema = |kind: &str| list(list(json!({ "type": kind })));
    for (kind, datatype) in [("number", "FP32"), ("string", "BYTES")] {
        let input = json!({ "kind": "object", "name": "x", "arrays": [], "schema": schema(kind) });
        let manifest = manifest(input, anything(), json!({}));
        let given = |shape: &[u64]| calls(&manifest, vec![tensor("x", datatype, shape, vec![])]);
        assert_eq!(first(&given(&[1, 2, 0]).unwrap()), ["[[],[]]"]);
        for shape in [&[1, 1 << 40, 0][..], &[1 << 19, 1 << 19, 0]] {
            assert!(given(shape).unwrap_err().contains("at most 1048576 empty lists"), "{shape:?}");
        }
    }
    let open = manifest(arrays(&[("a", "uint8", Value::Null)]), anything(), json!({}));
    let given = |axes: usize| calls(&open, vec![tensor("a", "UINT8", &vec![1; axes], vec![7])]);
    assert!(given(32).is_ok());
    assert!(given(65).unwrap_err().contains("at most 32 axes, got 65"));
}

#[test]
fn without_a_batch_the_shape_stays_whole() {
    let unbatched =
        manifest(arrays(&[("a", "uint8", json!([null, 2]))]), anything(), json!({ "options": { "batched": false } }));
    let calls = calls(&unbatched, vec![tensor("a", "UINT8", &[3, 2], vec![7; 6])]).unwrap();
    assert_eq!((calls.len(), &calls[0].parts[0].tensor.as_ref().unwrap().shape[..]), (1, &[3, 2][..]));
    let signature = Signature::of(&unbatched);
    let same = output("", Tag::Tensor, Some((Dtype::Uint8, &[3, 2])), &[7; 6]);
    assert_eq!(&join(&signature, &[], vec![answer([same])]).unwrap()[0].shape[..], [3, 2]);
}

#[test]
fn texts_are_elements() {
    let manifest =
        manifest(json!({ "kind": "text", "name": "texts", "arrays": [], "schema": true }), anything(), json!({}));
    for shape in [&[2][..], &[2, 1]] {
        let calls = calls(&manifest, vec![tensor("texts", "BYTES", shape, bytes(&["a", "ä"]))]).unwrap();
        assert_eq!(first(&calls), ["a", "ä"]);
    }
    let bad = calls(&manifest, vec![tensor("texts", "BYTES", &[2], b"\x01\0\0\0a\x01\0\0\0\xff".to_vec())]);
    assert!(bad.unwrap_err().starts_with("row 1 of 2: input `texts`: its text is not UTF-8"));
}

#[test]
fn a_struct_is_one_tensor_per_field_and_is_grouped_as_if_it_had_come_alone() {
    let given = vec![
        tensor("width", "INT32", &[2, 1], [512i32.to_le_bytes(), 8i32.to_le_bytes()].concat()),
        tensor("prompt", "BYTES", &[2, 1], bytes(&["a\"b", ""])),
        tensor("sizes", "FP32", &[2, 2], [1f32, 0.5, 2.0, -1.0].iter().flat_map(|size| size.to_le_bytes()).collect()),
        tensor("image", "BYTES", &[2], bytes(&["\0", ""])),
        tensor("more", "BYTES", &[2], bytes(&[r#"{"x": 1}"#, "[]"])),
    ];
    let calls = calls(&prompts(), given).unwrap();
    // In the order of the schema, not of the request.
    let expected = r#"{"prompt":"a\"b","width":512,"sizes":[1.0,0.5],"image":"AA==","more":{"x": 1}}"#;
    assert_eq!(first(&calls)[0], expected);
    let keys: Vec<&KeyPart> = calls.iter().map(|call| &call.group.0[0]).collect();
    assert_eq!(keys, [&KeyPart::Int(512), &KeyPart::Int(8)]);
    // What may be left out is what it is by default.
    let calls = self::calls(&prompts(), vec![tensor("prompt", "BYTES", &[1], bytes(&["a"]))]).unwrap();
    assert_eq!((first(&calls)[0].as_str(), &calls[0].group.0[0]), (r#"{"prompt":"a"}"#, &KeyPart::Int(512)));
}

#[test]
fn what_does_not_fit_is_named() {
    let two = manifest(arrays(&[("a", "int16", json!([2])), ("b", "uint8", json!([null]))]), anything(), json!({}));
    let a = || tensor("a", "INT16", &[1, 2], vec![0; 4]);
    let b = |shape: &[u64], length| tensor("b", "UINT8", shape, vec![0; length]);
    for (given, message) in [
        (vec![a()], "input `b` is missing"),
        (vec![a(), a()], "input `a` is there twice"),
        (vec![tensor("c", "UINT8", &[1], vec![0])], "no input `c`; the inputs are a, b"),
        (vec![a(), tensor("b", "INT8", &[1, 1], vec![0])], "the model takes UINT8, got INT8"),
        (vec![a(), b(&[1], 1)], "the model takes [-1, -1], got [1]"),
        (vec![a(), b(&[], 1)], "the first axis is the batch's"),
        (vec![a(), b(&[1, 3], 2)], "has 3 bytes, got 2"),
        (vec![a(), b(&[2, 1], 2)], "`a` has 1 rows and `b` has 2"),
        (vec![tensor("a", "INT16", &[0, 2], vec![]), b(&[0, 2], 0)], "no rows"),
        (vec![a(), b(&[1, 1 << 63, 4], 0)], "the model takes"),
        (vec![], "input `a` is missing"),
    ] {
        let failure = calls(&two, given).unwrap_err();
        assert!(failure.contains(message), "{failure}");
    }
    let free = manifest(arrays(&[("a", "uint8", json!([0]))]), anything(), json!({}));
    assert!(calls(&free, vec![tensor("a", "UINT8", &[1 << 19, 0], vec![])]).unwrap_err().contains("at most 1000"));
}

#[test]
fn rows_are_joined_in_order_and_wanted_outputs_chosen() {
    let named = json!({ "kind": "arrays", "schema": true, "arrays": [
        { "name": "x", "dtype": "uint8", "shape": [2] }, { "name": "y", "dtype": "any", "shape": null }] });
    let signature = Signature::of(&manifest(arrays(&[("a", "uint8", json!([1]))]), named, json!({})));
    let row = |n: u8| {
        let x = output("x", Tag::Tensor, Some((Dtype::Uint8, &[2])), &[n, n]);
        answer([x, output("y", Tag::Tensor, Some((Dtype::Int16, &[])), &[n, 0])])
    };
    let tensors = join(&signature, &["y".into(), "x".into()], vec![row(1), row(2)]).unwrap();
    let seen: Vec<(&str, &[u64], Vec<u8>)> =
        tensors.iter().map(|tensor| (&*tensor.name, &tensor.shape[..], tensor.data.0.concat())).collect();
    assert_eq!(seen, [("y", &[2][..], vec![1, 0, 2, 0]), ("x", &[2, 2], vec![1, 1, 2, 2])]);
    assert!(check_wanted(&signature, &["z".into()]).unwrap_err().detail.contains("the outputs are x, y"));
    assert!(check_wanted(&signature, &["x".into(), "x".into()]).is_err());
}

#[test]
fn one_failed_row_fails_the_request_and_is_named() {
    let signature = Signature::of(&manifest(arrays(&[("a", "uint8", json!([1]))]), anything(), json!({})));
    let good = || answer([output("", Tag::Text, None, b"ok")]);
    let bad = Answer {
        result: Err(Failure::new(Outcome::ModelFailed, "too odd")),
        timing: Timing::default(),
        tokens: None,
        end: None,
    };
    let failure = join(&signature, &[], vec![good(), bad.clone(), good()]).unwrap_err();
    assert_eq!(
        (failure.outcome, failure.detail.as_str()),
        (Outcome::ModelFailed, "row 1 of 3: too odd; the whole request fails with it")
    );
    assert_eq!(join(&signature, &[], vec![bad]).unwrap_err().detail, "too odd");
    let other = answer([output("", Tag::Tensor, Some((Dtype::Uint8, &[1])), &[1])]);
    assert_eq!(join(&signature, &[], vec![good(), other]).unwrap_err().outcome, Outcome::InvalidOutput);
    let ragged =
        |length: u64| answer([output("", Tag::Tensor, Some((Dtype::Uint8, &[length])), &vec![1; length as usize])]);
    assert!(
        join(&signature, &[], vec![ragged(1), ragged(2)])
            .unwrap_err()
            .detail
            .contains("row 1 of 2: output `output`: its shape is [2]")
    );
}

#[test]
fn fields_of_an_answer_are_tensors() {
    let signature = Signature::of(&prompts());
    let document = |width: i64| {
        let text =
            format!(r#"{{"prompt": "p", "width": {width}, "sizes": [0.5], "image": "AA==", "more": {{"k": null}}}}"#);
        answer([output("", Tag::Json, None, text.as_bytes())])
    };
    let tensors =
        join(&signature, &["width".into(), "sizes".into(), "more".into()], vec![document(1), document(2)]).unwrap();
    assert_eq!((tensors[0].datatype.name(), &tensors[0].shape[..]), ("INT64", &[2, 1][..]));
    assert_eq!(tensors[0].data.0.concat(), [1i64.to_le_bytes(), 2i64.to_le_bytes()].concat());
    assert_eq!((tensors[1].datatype.name(), &tensors[1].shape[..]), ("FP64", &[2, 1][..]));
    assert_eq!(tensors[2].data.0.concat(), bytes(&[r#"{"k":null}"#; 2]));
    let half = answer([output("", Tag::Json, None, b"{}")]);
    assert_eq!(join(&signature, &[], vec![half]).unwrap_err().outcome, Outcome::InvalidOutput);
}

#[test]
fn a_shape_without_elements_is_not_written_out_for_ever() {
    let nested = json!({ "type": "array", "items": { "type": "array", "items": { "type": "number" } } });
    let schema = json!({ "type": "object", "properties": { "grid": nested } });
    let grid =
        manifest(json!({ "kind": "object", "name": "items", "arrays": [], "schema": schema }), anything(), json!({}));
    let of = |shape: &[u64]| calls(&grid, vec![tensor("grid", "FP32", shape, vec![])]);
    assert_eq!(first(&of(&[1, 2, 0]).unwrap()), [r#"{"grid":[[],[]]}"#]);
    assert_eq!(first(&of(&[2, 0, 9]).unwrap()), [r#"{"grid":[]}"#; 2]);
    for shape in [&[1, 1 << 59, 0], &[1000, 1 << 40, 0]] {
        let refused = of(shape).unwrap_err();
        assert!(refused.contains("empty") || refused.contains("without elements"), "{shape:?}: {refused}");
    }
}

#[test]
fn outputs_without_end_are_not_compared_with_each_other() {
    let any = Signature::of(&manifest(arrays(&[("a", "int16", json!(null))]), anything(), json!({})));
    let wanted: Vec<Box<str>> = (0..1_000_000).map(|n| n.to_string().into()).collect();
    assert!(check_wanted(&any, &wanted[..1000]).is_ok());
    assert_eq!(check_wanted(&any, &wanted).unwrap_err().outcome, Outcome::TooLarge);
}

proptest! {
    #[test]
    fn no_tensor_is_too_strange(
        datatype in "BYTES|INT16|UINT8|BOOL|FP32|INT64", name in "a|prompt|width|sizes|texts|more",
        shape in prop::collection::vec(prop_oneof![0u64..4, any::<u64>()], 0..4), data in prop::collection::vec(0u8..4, 0..24),
    ) {
        let text = manifest(json!({ "kind": "text", "name": "texts", "arrays": [], "schema": true }), anything(), json!({}));
        let one = manifest(arrays(&[("a", "int16", json!(null))]), anything(), json!({}));
        for manifest in [text, one, prompts()] {
            if let Ok(calls) = calls(&manifest, vec![tensor(&name, &datatype, &shape, data.clone())]) {
                prop_assert_eq!(calls.len() as u64, shape[0]);
            }
        }
    }

    #[test]
    fn chunks_are_taken_apart_anywhere(lengths in prop::collection::vec(0usize..5, 0..6), at in 0usize..24) {
        let mut chunks = Chunks(lengths.iter().map(|&length| Bytes::from(vec![length as u8; length])).collect());
        let whole = chunks.0.concat();
        let taken = chunks.split_to(at);
        prop_assert_eq!(taken.len(), at.min(whole.len()));
        prop_assert_eq!([taken.0.concat(), chunks.0.concat()].concat(), whole);
    }
}
