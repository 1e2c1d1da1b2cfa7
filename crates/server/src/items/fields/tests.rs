use super::*;
use jitney_core::config::manifest::{Input, InputKind, Output, serde_json_value};
use jitney_core::config::options::DeploymentOptions;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

fn manifest(group_by: &serde_json::Value, cost: &serde_json::Value) -> DeploymentManifest {
    let options = DeploymentOptions::for_test();
    DeploymentManifest {
        name: "x".into(),
        route: None,
        method: None,
        doc: String::new(),
        options,
        option_sources: BTreeMap::new(),
        init: std::collections::BTreeMap::default(),
        input: Input {
            kind: InputKind::Object,
            name: String::new(),
            arrays: vec![],
            schema: serde_json_value::Value::Null,
        },
        output: Output { kind: "any".into(), arrays: vec![], schema: serde_json_value::Value::Null, part: None },
        task: None,
        group_by: serde_json::from_value(group_by.clone()).unwrap(),
        cost: serde_json::from_value(cost.clone()).unwrap(),
        uses: vec![],
        use_targets: std::collections::BTreeMap::new(),
        composed: None,
        examples: vec![],
    }
}

fn field(name: &str, types: &[&str], default: Option<serde_json::Value>, literals: &[&str]) -> serde_json::Value {
    let mut field = json!({ "name": name, "types": types, "literals": literals });
    if let Some(default) = default {
        field["default"] = default;
    }
    json!({ "source": { "field": field }, "edges": null })
}

fn length(of: Option<&str>, unit: &str, edges: Option<&[f64]>) -> serde_json::Value {
    json!({ "source": { "length": { "of": of, "unit": unit } }, "edges": edges })
}

/// From JSON and from msgpack, which must agree.
fn both(manifest: &DeploymentManifest, text: &str) -> Result<(GroupKey, u64), Failure> {
    let from_json = evaluate(manifest, Item::Document(Document::Json(text.as_bytes()), false));
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(text) {
        let packed = rmp_serde::to_vec(&value).unwrap();
        let from_msgpack = evaluate(manifest, Item::Document(Document::Msgpack(&packed), false));
        assert_eq!(from_json.as_ref().map_err(|f| &f.detail), from_msgpack.as_ref().map_err(|f| &f.detail), "{text}");
    }
    from_json
}

#[test]
fn keys_compare_values_not_spellings() {
    let manifest = manifest(&json!([field("w", &["float"], Some(json!(512)), &[])]), &json!(null));
    let key = |text: &str| both(&manifest, text).unwrap().0;
    assert_eq!(key(r#"{"w": 512}"#), key(r#"{"w": 512.0, "more": [{"w": 1}]}"#));
    assert_eq!(key(r#"{"w": 512}"#), key("{}"));
    assert_eq!(key(r#"{"w": 1, "w": 512e0}"#), key("{}"));
    assert_eq!(key(r#"{"\u0077": 7}"#), key(r#"{"w": 7}"#));
    assert_ne!(key(r#"{"w": 7.5}"#), key(r#"{"w": 7.25}"#));
}

#[test]
fn integers_that_no_float_tells_apart_are_refused_and_not_mixed() {
    for types in [&["int"][..], &["int", "str"], &["int", "float"]] {
        let manifest = manifest(&json!([field("w", types, None, &[])]), &json!(null));
        let key = |value: &str| both(&manifest, &format!(r#"{{"w": {value}}}"#)).map(|(key, _)| key);
        assert_ne!(key("9007199254740992").unwrap(), key("9007199254740993").unwrap(), "these fit into 64 bits");
        assert_ne!(key("9223372036854775806").unwrap(), key("9223372036854775807").unwrap());
        for huge in ["9223372036854775808", "18446744073709551616", "100000000000000000000000000001", "1e300"] {
            let refused = key(huge).unwrap_err();
            assert!(refused.detail.contains("64 bits"), "{types:?} {huge}: {refused:?}");
        }
    }
    let manifest = manifest(&json!([field("w", &["float"], None, &[])]), &json!(null));
    assert!(both(&manifest, r#"{"w": 1e300}"#).is_ok(), "a float is what it says");
}

#[test]
fn wrong_fields_are_named() {
    let group =
        json!([field("n", &["int"], None, &[]), field("mode", &["str", "none"], Some(json!("a")), &["a", "b"])]);
    let manifest = manifest(&group, &json!(null));
    for (text, says) in [
        ("{}", "$.n: is missing"),
        (r#"{"n": "x"}"#, "$.n: expected int, got str"),
        (r#"{"n": 1.5}"#, "$.n: expected int, got float"),
        (r#"{"n": true}"#, "$.n: expected int, got bool"),
        (r#"{"n": 1, "mode": 3}"#, "$.mode: expected str or none, got int"),
        (r#"{"n": 1, "mode": "c"}"#, "$.mode: expected one of \"a\", \"b\", got \"c\""),
        ("[]", "$: expected object, got list"),
        ("\"x\"", "$: expected object, got str"),
    ] {
        let failure = both(&manifest, text).unwrap_err();
        assert_eq!((failure.outcome, failure.detail.as_str()), (Outcome::InvalidInput, says));
    }
    assert_eq!(both(&manifest, r#"{"n": 2.0}"#).unwrap().0.0.to_vec(), [KeyPart::Int(2), KeyPart::Str("a".into())]);
    for text in ["", "{", r#"{"n": 1}}"#, "{'n': 1}"] {
        assert_eq!(both(&manifest, text).unwrap_err().outcome, Outcome::MalformedBody, "{text}");
    }
}

#[test]
fn a_default_of_null_is_a_default() {
    let null = json!([field("t", &["str", "none"], Some(json!(null)), &[])]);
    let manifest_of = |group: &serde_json::Value| manifest(group, &json!(null));
    for text in ["{}", r#"{"t": null}"#] {
        assert_eq!(both(&manifest_of(&null), text).unwrap().0.0.to_vec(), [KeyPart::Null]);
    }
    let none = json!([field("t", &["str", "none"], None, &[])]);
    assert_eq!(both(&manifest_of(&none), "{}").unwrap_err().detail, "$.t: is missing");
    // What was read is written as it was read.
    for group in [null, none] {
        let written = serde_json::to_value(&manifest_of(&group).group_by).unwrap();
        assert_eq!(written, group);
    }
}

#[test]
fn a_key_is_a_name_and_not_a_document() {
    let group = json!([field("t", &["str"], None, &[])]);
    let text = |bytes: usize| json!({ "t": "x".repeat(bytes) }).to_string();
    let by_name = manifest(&group, &json!(null));
    assert_eq!(both(&by_name, &text(1024)).unwrap().0.0.to_vec(), [KeyPart::Str("x".repeat(1024).into())]);
    let failure = both(&by_name, &text(1025)).unwrap_err();
    assert_eq!((failure.outcome, failure.field.as_deref()), (Outcome::InvalidInput, Some("$.t")));
    assert!(failure.detail.contains("at most 1024 bytes") && failure.detail.contains("got 1025"), "{}", failure.detail);
    // A string that is only measured may be as long as a body.
    let by_length = manifest(&json!([length(Some("t"), "characters", None)]), &json!(null));
    assert_eq!(both(&by_length, &text(100_000)).unwrap().0.0.to_vec(), [KeyPart::Int(100_000)]);
}

#[test]
fn lengths_are_measured_after_unescaping() {
    let of =
        |term: &serde_json::Value, item: Item<'_>| evaluate(&manifest(&json!([]), term), item).map(|(_, cost)| cost);
    let json = |text: &'static str| Item::Document(Document::Json(text.as_bytes()), false);
    let characters = length(Some("t"), "characters", None);
    assert_eq!(of(&characters, json(r#"{"t": "\u00e9\n\ud83d\ude00"}"#)).unwrap(), 3);
    assert_eq!(of(&length(Some("t"), "bytes", None), json(r#"{"t": "\u00e9\n"}"#)).unwrap(), 3);
    assert_eq!(of(&length(Some("t"), "axis", None), json(r#"{"t": [1, [2], {}]}"#)).unwrap(), 3);
    assert_eq!(of(&length(None, "axis", None), json("[1, 2]")).unwrap(), 2);
    assert_eq!(of(&length(None, "characters", None), json(r#""h\u00e9""#)).unwrap(), 2);
    assert_eq!(of(&length(None, "characters", None), Item::Text("h\u{e9}")).unwrap(), 2);
    assert_eq!(of(&length(None, "bytes", None), Item::Bytes(7)).unwrap(), 7);
    assert_eq!(of(&length(None, "bytes", None), Item::Document(Document::Json(b"\"YWJjZA==\""), true)).unwrap(), 4);
    assert_eq!(of(&characters, json(r#"{"t": 5}"#)).unwrap_err().detail, "$.t: expected str, got int");
    assert_eq!(of(&characters, json("{}")).unwrap_err().detail, "$.t: is missing");
}

#[test]
fn a_bucket_is_part_of_the_key() {
    let manifest = manifest(&json!([length(Some("t"), "characters", Some(&[2.0, 4.0]))]), &json!(null));
    for (text, bucket) in [("", 0), ("ab", 0), ("abc", 1), ("abcde", 2)] {
        assert_eq!(both(&manifest, &json!({ "t": text }).to_string()).unwrap().0.0.to_vec(), [KeyPart::Bucket(bucket)]);
    }
}

#[test]
fn costs_are_whole_and_not_negative() {
    let manifest = manifest(&json!([]), &field("c", &["int", "float"], None, &[]));
    for (value, cost) in
        [("0", Some(0)), ("7", Some(7)), ("6.2", Some(7)), ("-1", None), ("-0.5", Some(0)), ("1e300", None)]
    {
        assert_eq!(both(&manifest, &format!("{{\"c\": {value}}}")).ok().map(|(_, cost)| cost), cost, "{value}");
    }
}

#[test]
fn depth_is_bounded_in_what_is_passed_over() {
    let manifest = manifest(&json!([field("w", &["int"], Some(json!(1)), &[])]), &json!(null));
    let deep = format!("{{\"x\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let json = evaluate(&manifest, Item::Document(Document::Json(deep.as_bytes()), false));
    assert_eq!(json.unwrap_err().outcome, Outcome::MalformedBody);
    let mut packed = vec![0x81, 0xa1, b'x'];
    packed.extend(std::iter::repeat_n(0x91, 100_000));
    let msgpack = evaluate(&manifest, Item::Document(Document::Msgpack(&packed), false));
    assert_eq!(msgpack.unwrap_err().outcome, Outcome::MalformedBody);
}

proptest! {
    #[test]
    fn garbage_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let group = json!([field("w", &["int"], Some(json!(1)), &[]), length(None, "axis", None)]);
        let manifest = manifest(&group, &json!(null));
        for document in [Document::Json(&bytes), Document::Msgpack(&bytes)] {
            let _ = evaluate(&manifest, Item::Document(document, false));
        }
    }

    #[test]
    fn integers_and_strings_survive(number in any::<i64>(), text in ".*") {
        let group = json!([field("n", &["int"], None, &[]), field("t", &["str"], None, &[])]);
        let document = json!({ "a": [text], "n": number, "t": text, "z": null }).to_string();
        let key = both(&manifest(&group, &json!(null)), &document).unwrap().0;
        prop_assert_eq!(key.0.to_vec(), [KeyPart::Int(number), KeyPart::Str(text.into())]);
    }
}
