//! The readers. Each says whether it took the bytes, and checks what it made of them.

use bytes::Bytes;
use jitney_core::config::manifest::{ArraySpec, DeploymentManifest, InputKind};
use jitney_core::config::options::DeploymentOptions;
use jitney_server::items::arrays::{files, lists};
use jitney_server::items::document::Document;
use jitney_server::items::fields::{Item, evaluate};
use jitney_server::items::many;
use jitney_server::items::many::Format;
use jitney_server::link::batch_end::BatchEnd;
use jitney_server::link::frame::header::{HEADER_LEN, Header};
use jitney_server::link::frame::reader::FrameReader;
use jitney_server::link::results_frame::ItemOutcome;
use jitney_server::link::{batch_frame, results_frame, step_frame};
use jitney_server::values::answer::Failure;
use jitney_server::values::call::Part;
use jitney_server::values::chunks::Chunks;
use serde_json::json;
use std::sync::LazyLock;

/// Most bytes of the arrays of one item.
const MOST: usize = 1 << 16;

pub(crate) fn all(bytes: &[u8]) {
    for target in [batch, results, step, batch_end, stream, array, npy, fields, list, rows] {
        target(bytes);
    }
}

/// Table and payload of a frame, as far as its header and its bytes go.
fn split(frame: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, rest) = frame.split_at_checked(HEADER_LEN)?;
    // Damage to the header is for `stream`; here the table is to be reached.
    let table = Header::decode(header.try_into().unwrap()).map_or(rest.len() / 2, |header| header.table);
    Some(rest.split_at(table.min(rest.len())))
}

pub(crate) fn batch(frame: &[u8]) -> bool {
    let Some((table, payload)) = split(frame) else { return false };
    let Ok(batch) = batch_frame::decode(table, payload.to_vec()) else { return false };
    for part in batch.items.iter().flat_map(|item| &item.parts) {
        let value = &batch.payload[part.offset..part.offset + part.len];
        assert!(part.tensor.as_ref().is_none_or(|tensor| tensor.byte_len() == Some(value.len() as u64)));
    }
    assert!(batch.items.len() * 16 <= table.len());
    true
}

pub(crate) fn step(frame: &[u8]) -> bool {
    let Some((table, payload)) = split(frame) else { return false };
    step_frame::decode(table, &Bytes::copy_from_slice(payload).into()).is_ok()
}

pub(crate) fn results(frame: &[u8]) -> bool {
    let Some((table, payload)) = split(frame) else { return false };
    let Ok(results) = results_frame::decode(table, &Bytes::copy_from_slice(payload).into()) else { return false };
    assert!(results.items.len() * 13 <= table.len());
    for item in &results.items {
        let (ItemOutcome::Values(parts) | ItemOutcome::End(parts, _) | ItemOutcome::Part(parts)) = &item.outcome else {
            continue;
        };
        for part in parts {
            assert!(part.data.len() <= payload.len());
            let is_right =
                |tensor: &jitney_server::values::tensor::TensorType| tensor.byte_len() == Some(part.data.len() as u64);
            assert!(part.tensor.as_ref().is_none_or(is_right));
        }
    }
    true
}

pub(crate) fn batch_end(frame: &[u8]) -> bool {
    let Some((table, _)) = split(frame) else { return false };
    let Ok(end) = BatchEnd::decode(table) else { return false };
    assert_eq!(&end.encode()[HEADER_LEN..], table, "no part of it is skipped");
    true
}

pub(crate) fn stream(bytes: &[u8]) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (mut reader, mut read) = (FrameReader::new(bytes), 0);
        loop {
            match reader.next_within(1 << 20).await {
                Ok(Some(frame)) => read += HEADER_LEN + frame.table.len() + frame.payload.len(),
                Ok(None) => {
                    assert_eq!(read, bytes.len());
                    return true;
                }
                Err(_) => return false,
            }
        }
    })
}

fn spec(name: &str, dtype: &str, shape: Option<Vec<Option<u64>>>) -> ArraySpec {
    ArraySpec { name: name.into(), dtype: dtype.into(), shape, is_stacked: true }
}

static SPECS: LazyLock<[Vec<ArraySpec>; 3]> = LazyLock::new(|| {
    [
        vec![spec("x", "float32", None)],
        vec![spec("x", "int8", Some(vec![Some(2), None]))],
        vec![spec("a", "bool", None), spec("b", "float16", Some(vec![None]))],
    ]
});

fn check(part: &Part) {
    let tensor = part.tensor.as_ref().unwrap();
    assert_eq!(tensor.byte_len(), Some(part.data.len() as u64));
}

pub(crate) fn array(document: &[u8]) -> bool {
    let mut is_read = false;
    for specs in &*SPECS {
        for document in [Document::Json(document), Document::Msgpack(document)] {
            if let Ok(parts) = lists::from_document(specs, document, MOST) {
                assert!(parts.iter().map(|part| part.data.len()).sum::<usize>() <= MOST * specs.len());
                parts.iter().for_each(check);
                is_read = true;
            }
        }
    }
    is_read
}

pub(crate) fn npy(file: &[u8]) -> bool {
    let whole = files::from_npy(&SPECS[0][0], Chunks::from(Bytes::copy_from_slice(file)));
    let pieces = Chunks(file.chunks(7).map(Bytes::copy_from_slice).collect());
    let pieces = files::from_npy(&SPECS[0][0], pieces);
    let said = |read: &Result<Part, Failure>| match read {
        Ok(part) => format!("{:?} {:?}", part.tensor, part.data.0.concat()),
        Err(failure) => failure.detail.clone(),
    };
    assert_eq!(said(&whole), said(&pieces), "however it is cut");
    whole.as_ref().is_ok_and(|part| {
        check(part);
        true
    })
}

static MANIFEST: LazyLock<DeploymentManifest> = LazyLock::new(|| {
    let field = |name, types: &[&str], default: serde_json::Value| json!({"source": {"field": {"name": name, "types": types, "default": default, "literals": []}}, "edges": null});
    let manifest = json!({
        "name": "d", "doc": "", "option_sources": {}, "examples": [],
        "options": DeploymentOptions::for_test(),
        "input": {"kind": "object", "arrays": [], "schema": true},
        "output": {"kind": "object", "arrays": [], "schema": true},
        "group_by": [
            field("width", &["int"], json!(512)),
            field("scale", &["float", "none"], json!(1.5)),
            {"source": {"length": {"of": "prompt", "unit": "characters"}}, "edges": [8.0, 64.0]},
        ],
        "cost": {"source": {"length": {"of": "tags", "unit": "axis"}}, "edges": null},
    });
    serde_json::from_value(manifest).unwrap()
});

pub(crate) fn fields(document: &[u8]) -> bool {
    assert_eq!(MANIFEST.input.kind, InputKind::Object);
    let json = evaluate(&MANIFEST, Item::Document(Document::Json(document), false));
    let msgpack = evaluate(&MANIFEST, Item::Document(Document::Msgpack(document), false));
    json.is_ok() || msgpack.is_ok()
}

/// A list is cut into pieces that are there, in order, without overlap.
pub(crate) fn list(bytes: &[u8]) -> bool {
    let whole = Bytes::copy_from_slice(bytes);
    let mut taken = false;
    for format in [Format::Json, Format::Msgpack] {
        let Ok(items) = many::split(format, &whole, 1000) else { continue };
        assert!(items.len() <= 1000 && items.len() <= whole.len());
        let mut end = whole.as_ptr() as usize;
        for item in &items {
            assert!(!item.is_empty() && item.as_ptr() as usize >= end);
            end = item.as_ptr() as usize + item.len();
        }
        assert!(end <= whole.as_ptr() as usize + whole.len());
        taken = true;
    }
    taken
}

/// The rows of a file hold all of its elements, whatever pieces it came in.
pub(crate) fn rows(bytes: &[u8]) -> bool {
    let spec = ArraySpec { name: "x".into(), dtype: "float32".into(), shape: None, is_stacked: true };
    let pieces = bytes.chunks(100).map(Bytes::copy_from_slice).collect();
    let whole = files::rows_from_npy(&spec, Chunks::from(Bytes::copy_from_slice(bytes)), 1000);
    let cut = files::rows_from_npy(&spec, Chunks(pieces), 1000);
    let (Ok(whole), Ok(cut)) = (&whole, &cut) else {
        assert_eq!(whole.is_ok(), cut.is_ok());
        return false;
    };
    for (row, same) in whole.iter().zip(cut) {
        assert_eq!(row.tensor, same.tensor);
        assert_eq!(row.data.clone().contiguous(), same.data.clone().contiguous());
        assert_eq!(row.tensor.as_ref().unwrap().byte_len(), Some(row.data.len() as u64));
    }
    true
}
