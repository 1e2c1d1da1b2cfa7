use crate::items::arrays::files::from_npy;
use crate::items::arrays::lists::from_document;
use crate::items::arrays::npy;
use crate::items::arrays::parameter::{check_part, key_parts};
use crate::items::arrays::shape::check_shape;
use crate::items::document::Document;
use crate::values::answer::Failure;
use crate::values::call::Part;
use crate::values::chunks::Chunks;
use crate::values::tensor::{Dtype, Tag, TensorType};
use bytes::Bytes;
use jitney_core::config::manifest::ArraySpec;
use jitney_core::queue::group_key::KeyPart;
use jitney_core::tables::outcome::Outcome;
use proptest::prelude::*;
use serde_json::{Value, json};
use smallvec::SmallVec;

const MOST: usize = 1 << 20;

fn spec(name: &str, dtype: &str, shape: Option<&[Option<u64>]>) -> ArraySpec {
    ArraySpec { name: name.into(), dtype: dtype.into(), shape: shape.map(<[_]>::to_vec), is_stacked: true }
}

fn one(spec: &ArraySpec, text: &str) -> Result<(Vec<u64>, Vec<u8>), Failure> {
    let parts = from_document(std::slice::from_ref(spec), Document::Json(text.as_bytes()), MOST)?;
    let part = parts.into_iter().next().unwrap();
    Ok((part.tensor.unwrap().shape.to_vec(), part.data.0.concat()))
}

#[test]
fn every_dtype_keeps_its_extremes_and_nothing_beyond() {
    for (dtype, least, most) in [
        ("uint8", 0i128, 255i128),
        ("uint16", 0, 65_535),
        ("uint32", 0, u32::MAX.into()),
        ("uint64", 0, u64::MAX.into()),
        ("int8", -128, 127),
        ("int16", -32_768, 32_767),
        ("int32", i32::MIN.into(), i32::MAX.into()),
        ("int64", i64::MIN.into(), i64::MAX.into()),
    ] {
        let spec = spec("x", dtype, None);
        let size = Dtype::parse(dtype).unwrap().size();
        let (shape, data) = one(&spec, &format!("[{least}, {most}]")).unwrap();
        assert_eq!(shape, [2]);
        assert_eq!(data, [least.to_le_bytes()[..size].to_vec(), most.to_le_bytes()[..size].to_vec()].concat());
        for beyond in [least - 1, most + 1] {
            assert_eq!(
                one(&spec, &format!("[{beyond}]")).unwrap_err().outcome,
                Outcome::InvalidInput,
                "{dtype} {beyond}"
            );
        }
        assert!(one(&spec, "[1.0]").is_err() && one(&spec, "[true]").is_err());
    }
}

#[test]
fn floats_take_integers_and_refuse_what_would_be_infinite() {
    assert_eq!(one(&spec("x", "float32", None), "[1]").unwrap().1, 1f32.to_le_bytes());
    assert_eq!(one(&spec("x", "float64", None), "[0.1]").unwrap().1, 0.1f64.to_le_bytes());
    assert_eq!(one(&spec("x", "float16", None), "[65504]").unwrap().1, [0xff, 0x7b]);
    for (dtype, text) in [("float16", "[65520]"), ("float32", "[1e39]"), ("float32", "[-1e39]")] {
        assert!(one(&spec("x", dtype, None), text).unwrap_err().detail.contains("out of range"));
    }
}

#[test]
fn ragged_lists_are_refused() {
    let spec = spec("x", "float32", None);
    for text in [
        "[[1], [1, 2]]",
        "[1, [2]]",
        "[[1], 2]",
        "[[], [1]]",
        "[[1], []]",
        "[[[1]], [[]]]",
        "[[[1]], []]",
        "[[], [[1]]]",
    ] {
        assert_eq!(one(&spec, text).unwrap_err().outcome, Outcome::InvalidInput, "{text}");
    }
    for (text, shape) in [("[]", vec![0]), ("[[], []]", vec![2, 0]), ("3", vec![]), ("[[[1]], [[2]]]", vec![2, 1, 1])] {
        assert_eq!(one(&spec, text).unwrap().0, shape, "{text}");
    }
}

#[test]
fn an_object_in_place_of_the_array_is_told_what_to_send() {
    let spec = spec("x", "float32", None);
    let said = one(&spec, r#"{"x": [1, 2]}"#).unwrap_err().detail;
    assert!(said.ends_with("expected float32 elements, got object; send the array itself, as nested lists"), "{said}");
    let said = one(&spec, r#"[{"x": 1}]"#).unwrap_err().detail;
    assert!(said.ends_with("expected float32 elements, got object"), "{said}");
}

#[test]
fn depth_and_memory_are_bounded() {
    let spec = spec("x", "float64", None);
    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(one(&spec, &deep(32)).unwrap().0.len(), 32);
    assert_eq!(one(&spec, &deep(33)).unwrap_err().outcome, Outcome::InvalidInput);
    assert!(one(&spec, &deep(100_000)).is_err());
    let wide = format!("[{}1]", "1,".repeat(1000));
    let failure = from_document(std::slice::from_ref(&spec), Document::Json(wide.as_bytes()), 8000).unwrap_err();
    assert_eq!(failure.outcome, Outcome::TooLarge);
    // The bound is for all arrays together; what a duplicate replaces no longer counts.
    let two = [spec.clone(), ArraySpec { name: "y".into(), ..spec }];
    let read = |text: &str| from_document(&two, Document::Json(text.as_bytes()), 32).map_err(|failure| failure.outcome);
    assert!(read(r#"{"x": [1, 2], "y": [3, 4]}"#).is_ok());
    assert!(read(r#"{"x": [1, 2, 3, 4], "x": [1, 2], "y": [3, 4]}"#).is_ok());
    assert_eq!(read(r#"{"x": [1, 2], "y": [3, 4, 5]}"#).unwrap_err(), Outcome::TooLarge);
}

#[test]
fn msgpack_gives_the_same() {
    let specs = [spec("a", "float32", None), spec("b", "int8", Some(&[Some(2)]))];
    let value = json!({ "a": [[1.5, 2.0]], "b": [1, -2] });
    let packed = rmp_serde::to_vec(&value).unwrap();
    let from_msgpack = from_document(&specs, Document::Msgpack(&packed), MOST).unwrap();
    let text = value.to_string();
    let from_json = from_document(&specs, Document::Json(text.as_bytes()), MOST).unwrap();
    for (a, b) in from_msgpack.iter().zip(&from_json) {
        assert_eq!((&a.tensor, a.data.0.concat()), (&b.tensor, b.data.0.concat()));
    }
    let mut more = packed.clone();
    more.push(0);
    assert_eq!(from_document(&specs, Document::Msgpack(&more), MOST).unwrap_err().outcome, Outcome::MalformedBody);
    // A list that claims four billion elements and has none.
    let liar = [0xdd, 0xff, 0xff, 0xff, 0xff];
    assert!(from_document(&specs[..1], Document::Msgpack(&liar), MOST).is_err());
}

#[test]
fn an_npy_header_may_be_split_anywhere_and_elements_are_not_copied() {
    let array = TensorType { dtype: Dtype::Int16, shape: smallvec::smallvec![3] };
    let mut file = npy::header(&array);
    let start = file.len();
    file.extend([1, 0, 2, 0, 3, 0]);
    let spec = spec("x", "int16", Some(&[None]));
    let whole = Bytes::from(file);
    for cut in 0..whole.len() {
        let chunks = Chunks([whole.slice(..cut), whole.slice(cut..)].into_iter().collect());
        let part = from_npy(&spec, chunks).unwrap();
        assert_eq!(part.data.0.concat(), [1, 0, 2, 0, 3, 0]);
        if cut <= start {
            assert_eq!(part.data.0[0].as_ptr(), whole[start..].as_ptr());
        }
    }
    let truncated = Chunks::from(whole.slice(..whole.len() - 1));
    assert_eq!(from_npy(&spec, truncated).unwrap_err().outcome, Outcome::MalformedBody);
    let other = ArraySpec { dtype: "int32".into(), ..spec };
    assert!(
        from_npy(&other, Chunks::from(whole))
            .unwrap_err()
            .detail
            .contains("expected int32 of shape (any), got int16 of shape (3)")
    );
}

#[test]
fn only_open_arrays_join_the_key() {
    let specs = [spec("a", "uint8", Some(&[Some(1)])), spec("b", "uint8", Some(&[None])), spec("c", "uint8", None)];
    let parts = from_document(&specs, Document::Json(br#"{"a": [1], "b": [1, 2], "c": [[3]]}"#), MOST).unwrap();
    let mut key = SmallVec::new();
    let listed = specs.clone().map(|spec| ArraySpec { is_stacked: false, ..spec });
    key_parts(&listed, &parts, &mut key);
    assert!(key.is_empty(), "arrays of any shape share a batch where they are not stacked");
    key_parts(&specs, &parts, &mut key);
    assert_eq!(
        key.to_vec(),
        [KeyPart::Tensor(1, smallvec::smallvec![2]), KeyPart::Tensor(1, smallvec::smallvec![1, 1])]
    );
}

fn nested(shape: &[u64], numbers: &mut impl Iterator<Item = i32>) -> Value {
    match shape.split_first() {
        None => json!(numbers.next().unwrap()),
        Some((&axis, inner)) => (0..axis).map(|_| nested(inner, numbers)).collect(),
    }
}

proptest! {
    #[test]
    fn arrays_survive(shape in prop::collection::vec(1u64..5, 0..5), start in -1000i32..1000) {
        let mut numbers = start..;
        let value = nested(&shape, &mut numbers);
        let expected: Vec<u8> = (start..numbers.start).flat_map(i32::to_le_bytes).collect();
        let (got, data) = one(&spec("x", "int32", None), &value.to_string()).unwrap();
        prop_assert_eq!((got, data), (shape, expected));
    }

    #[test]
    fn garbage_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for specs in [&[spec("x", "float32", None)][..], &[spec("a", "bool", None), spec("b", "int8", None)][..]] {
            for document in [Document::Json(&bytes), Document::Msgpack(&bytes)] {
                let _ = from_document(specs, document, MOST);
            }
        }
        let _ = from_npy(&spec("x", "float32", None), Chunks::from(Bytes::from(bytes)));
    }

    #[test]
    fn brackets_in_any_order_are_refused_or_read(text in "[\\[\\],1 ]{0,40}") {
        let _ = one(&spec("x", "float32", None), &text);
    }
}

#[test]
fn an_array_of_few_bytes_may_not_be_lists_without_end() {
    for (shape, fits) in [
        (&[0, 1 << 40][..], true),
        (&[(1 << 20) - 1, 0], true),
        (&[1 << 20, 0], false),
        (&[1 << 10, 1 << 9, 0, 1 << 20], true),
        (&[1 << 19, 1, 1, 0], false),
        (&[1, 1 << 40, 0], false),
        (&[1 << 40, 1 << 40, 0], false),
        (&[1; 32], true),
        (&[1; 33], false),
    ] {
        assert_eq!(check_shape(shape).is_ok(), fits, "{shape:?}");
        let array = TensorType { dtype: Dtype::Uint8, shape: SmallVec::from_slice(shape) };
        if array.byte_len().is_some_and(|bytes| bytes <= 1) {
            let data = Chunks::from(Bytes::from(vec![0; array.byte_len().unwrap() as usize]));
            let part = Part { tag: Tag::Tensor, tensor: Some(array), data };
            assert_eq!(check_part(&spec("x", "uint8", None), "$", &part).is_ok(), fits, "{shape:?}");
        }
    }
}
