use super::*;
use jitney_core::config::manifest::DeploymentManifest;
use jitney_core::config::options::DeploymentOptions;
use proptest::prelude::*;
use serde_json::{Value, json};

fn signature(arrays: &[(&str, &str, Value)], batched: bool) -> Signature {
    let arrays: Vec<Value> =
        arrays.iter().map(|(name, dtype, shape)| json!({ "name": name, "dtype": dtype, "shape": shape })).collect();
    let manifest: DeploymentManifest = serde_json::from_value(json!({
        "name": "m", "doc": "", "option_sources": {}, "group_by": [], "cost": null, "examples": [],
        "input": { "kind": if arrays.is_empty() { "text" } else { "arrays" }, "name": "texts", "arrays": arrays, "schema": true },
        "output": { "kind": "any", "arrays": [], "schema": true },
        "options": DeploymentOptions { batched, ..DeploymentOptions::for_test() },
    }))
    .unwrap();
    Signature::of(&manifest)
}

fn read_of(json: &str, binary: &[u8]) -> Result<Infer, Failure> {
    let body = [json.as_bytes(), binary].concat();
    read(&signature(&[], true), Bytes::from(body).into(), Some(json.len()), 1 << 20)
}

fn input(input: &str) -> Result<Tensor, Failure> {
    Ok(read_of(&format!(r#"{{"inputs": [{input}]}}"#), b"")?.request.inputs.remove(0))
}

#[test]
fn data_may_be_nested_or_flat() {
    for data in ["[1,2,3,4]", "[[1,2],[3,4]]"] {
        let tensor =
            input(&format!(r#"{{"name": "x", "shape": [2,2], "datatype": "INT16", "data": {data}}}"#)).unwrap();
        assert_eq!(tensor.data.0.concat(), [1, 0, 2, 0, 3, 0, 4, 0]);
    }
    for data in [r#"["a","bc"]"#, r#"[["a"],["bc"]]"#] {
        let tensor = input(&format!(r#"{{"name": "x", "shape": [2,1], "datatype": "BYTES", "data": {data}}}"#));
        assert_eq!(tensor.unwrap().data.0.concat(), b"\x01\0\0\0a\x02\0\0\0bc");
    }
}

#[test]
fn binary_tensors_follow_in_the_order_of_the_json() {
    let json = r#"{"id": "7", "parameters": {"binary_data_output": true, "mine": 1.5}, "inputs": [
        {"name": "a", "shape": [2], "datatype": "UINT8", "parameters": {"binary_data_size": 2}},
        {"name": "b", "shape": [1], "datatype": "INT16", "data": [9]},
        {"name": "c", "shape": [1], "datatype": "UINT16", "parameters": {"binary_data_size": 2}}],
        "outputs": [{"name": "o", "parameters": {"binary_data": false}}, {"name": "p"}]}"#;
    let Infer { request, binary } = read_of(json, &[1, 2, 3, 4]).unwrap();
    let data: Vec<Vec<u8>> = request.inputs.iter().map(|tensor| tensor.data.0.concat()).collect();
    assert_eq!(data, [vec![1, 2], vec![9, 0], vec![3, 4]]);
    assert_eq!((request.id.as_str(), request.outputs.len()), ("7", 2));
    assert_eq!((binary.wants("o"), binary.wants("p")), (false, true));
}

#[test]
fn however_much_is_wrong_the_refusal_is_short() {
    let many = vec!["1"; 100_000].join(",");
    let long = "x".repeat(100_000);
    for wrong in [
        format!(r#"{{"name": "x", "shape": [{many}], "datatype": "INT8", "data": [1]}}"#),
        format!(r#"{{"name": "x", "shape": "{long}", "datatype": "INT8", "data": [1]}}"#),
        format!(r#"{{"name": "{long}", "shape": [1], "datatype": "{long}", "data": [1]}}"#),
        format!(r#"{{"name": "x", "shape": [1], "datatype": "INT8", "data": "{long}"}}"#),
        format!(r#"{{"name": "x", "shape": [1], "datatype": "BYTES", "data": {{"{long}": 1}}}}"#),
    ] {
        let detail = input(&wrong).unwrap_err().detail;
        assert!(detail.len() < 600, "{} bytes: {}…", detail.len(), &detail[..80]);
    }
    let failure =
        input(&format!(r#"{{"name": "x", "shape": [{many}], "datatype": "INT8", "data": [1]}}"#)).unwrap_err();
    assert!(failure.detail.contains("a shape has more than 32 axes"), "{}", failure.detail);
}

#[test]
fn lists_are_not_read_as_objects() {
    for json in [
        r#"["7", {}, []]"#,
        r#"{"inputs": [["x", "INT8", [1], {}, [1]]]}"#,
        r#"{"inputs": [], "outputs": [["o", {}]]}"#,
    ] {
        let detail = read_of(json, b"").unwrap_err().detail;
        assert!(detail.contains("expected an object") && !detail.contains("struct"), "{detail}");
    }
}

#[test]
fn null_is_the_same_as_nothing() {
    let json = r#"{"id": null, "parameters": null, "outputs": null,
        "inputs": [{"name": "x", "shape": [1], "datatype": "INT8", "parameters": null, "data": [1]}]}"#;
    let request = read_of(json, b"").unwrap().request;
    assert_eq!((request.id.as_str(), request.parameters.len(), request.outputs.len()), ("", 0, 0));
    let outputs = json.replace(r#""outputs": null"#, r#""outputs": [{"name": "o", "parameters": null}]"#);
    assert_eq!(&*read_of(&outputs, b"").unwrap().request.outputs[0], "o");
}

#[test]
fn what_does_not_fit_is_named() {
    for (wrong, told) in [
        (r#"{"name": "x", "shape": [2], "datatype": "INT32", "data": [1]}"#, "`x`: its shape is [2]"),
        (r#"{"name": "x", "shape": [2], "datatype": "INT32", "data": [1, "a"]}"#, "`x`: expected int32"),
        (r#"{"name": "x", "shape": [1], "datatype": "UINT8", "data": [256]}"#, "256"),
        (r#"{"name": "x", "shape": [1], "datatype": "BYTES", "data": [1]}"#, "`x`: invalid type"),
        (r#"{"name": "x", "shape": [1], "datatype": "BF16", "data": [1]}"#, "datatype `BF16`"),
        (r#"{"name": "x", "shape": [-1], "datatype": "INT8", "data": [1]}"#, "-1"),
        (r#"{"name": "x", "shape": [1], "datatype": "INT8"}"#, "neither data nor"),
        (
            r#"{"name": "x", "shape": [1], "datatype": "INT8", "parameters": {"binary_data_size": 1}}"#,
            "0 bytes are left",
        ),
        (r#"{"name": "x", "shape": [1], "datatype": "INT8", "parameters": {"binary_data_size": -1}}"#, "whole number"),
        (
            r#"{"name": "x", "shape": [1], "datatype": "INT8", "data": [1], "parameters": {"shared_memory_region": "r"}}"#,
            "shared_memory_region",
        ),
        (r#"{"shape": [1], "datatype": "INT8", "data": [1]}"#, "name"),
    ] {
        let failure = input(wrong).unwrap_err();
        assert!(failure.detail.contains(told), "{wrong}: {}", failure.detail);
    }
    let claims =
        r#"{"inputs": [{"name": "a", "shape": [1], "datatype": "UINT8", "parameters": {"binary_data_size": 1}}]}"#;
    assert!(read_of(claims, &[1, 2]).unwrap_err().detail.contains("1 bytes follow"));
    let body = || Bytes::from_static(b"{}").into();
    assert!(read(&signature(&[], true), body(), Some(3), 9).unwrap_err().detail.contains("has 3 bytes"));
    assert!(read(&signature(&[], true), body(), Some(1), 9).is_err());
}

#[test]
fn parameters_are_bounded_as_they_are_read() {
    let many = |count: usize| {
        let entries: Vec<String> = (0..count).map(|n| format!("\"{n}\":0")).collect();
        read_of(&format!(r#"{{"parameters": {{{}}}, "inputs": []}}"#, entries.join(",")), b"")
    };
    assert_eq!(many(1024).unwrap().request.parameters.len(), 1024);
    assert!(many(1025).unwrap_err().detail.contains("1024 parameters"));
}

#[test]
fn a_body_without_json_is_the_one_input() {
    let raw = |signature: &Signature, body: &'static [u8]| {
        read(signature, Bytes::from_static(body).into(), Some(0), 99).map(|mut infer| infer.request.inputs.remove(0))
    };
    let text = raw(&signature(&[], true), b"abc").unwrap();
    assert_eq!((&*text.name, &text.shape[..], text.data.0.concat()), ("texts", &[1, 1][..], b"\x03\0\0\0abc".to_vec()));
    let open = raw(&signature(&[("x", "uint16", json!([null, 2]))], true), b"12345678").unwrap();
    assert_eq!(&open.shape[..], [1, 2, 2]);
    assert_eq!(&raw(&signature(&[("x", "uint8", json!([3]))], false), b"123").unwrap().shape[..], [3]);
    assert!(raw(&signature(&[("x", "uint8", json!(null))], true), b"1").is_err());
    assert!(raw(&signature(&[("x", "uint8", json!([1])), ("y", "uint8", json!([1]))], true), b"1").is_err());
}

#[test]
fn strings_in_json_grow_to_the_limit_and_not_beyond() {
    let json = format!(
        r#"{{"inputs": [{{"name": "x", "shape": [1000], "datatype": "BYTES", "data": [{}]}}]}}"#,
        vec![r#""""#; 1000].join(",")
    );
    let body = || Bytes::from(json.clone()).into();
    assert!(read(&signature(&[], true), body(), None, 4000).is_ok());
    assert_eq!(read(&signature(&[], true), body(), None, 3999).unwrap_err().outcome, Outcome::TooLarge);
}

proptest! {
    #[test]
    fn no_body_is_too_strange(body in prop::collection::vec(any::<u8>(), 0..200), json_bytes in prop::option::of(0usize..220)) {
        let _ = read(&signature(&[], true), Bytes::from(body).into(), json_bytes, 1 << 10);
    }

    #[test]
    fn no_request_is_too_strange(
        name in "[a-c]", datatype in "BYTES|INT32|BOOL|FP16|X", shape in prop::collection::vec(0u64..1 << 40, 0..4),
        size in prop::option::of(0u64..20), data in prop::option::of("\\[(1|\"a\"|\\[\\]|\\[1\\]|,|true){0,5}\\]"),
        binary in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let parameters = size.map_or("{}".into(), |size| format!(r#"{{"binary_data_size": {size}}}"#));
        let data = data.map_or(String::new(), |data| format!(r#", "data": {data}"#));
        let json = format!(
            r#"{{"inputs": [{{"name": "{name}", "datatype": "{datatype}", "shape": {shape:?}, "parameters": {parameters}{data}}}]}}"#
        );
        let _ = read_of(&json, &binary);
    }
}
