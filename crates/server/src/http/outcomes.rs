//! The outcomes of many items as one body: each a value or a problem, in the order of the items.

use super::fault;
use super::media::Accept;
use super::problem::Document;
use super::render::{self, JSON, MSGPACK, NPY};
use crate::call::{Failure, OutputPart, TensorType};
use crate::item::npy;
use jitney_core::outcome::Outcome;
use serde::Serialize;
use smallvec::SmallVec;

/// How one item ended.
pub(crate) type Item = Result<SmallVec<[OutputPart; 1]>, Failure>;

/// A body that holds them all.
#[derive(Debug)]
pub(crate) struct Outcomes {
    pub(crate) media: &'static str,
    pub(crate) body: Vec<u8>,
    /// How many of them failed.
    pub(crate) failed: usize,
    /// The first failure, if there is nothing else.
    pub(crate) all_failed: Option<Failure>,
}

/// What they can be written as. One array of all rows is there only for answers that are arrays.
pub(crate) fn offers(kind: &str) -> &'static [&'static str] {
    const ALL: &[&str] = &[JSON, MSGPACK, NPY];
    if matches!(kind, "array" | "any") { ALL } else { &ALL[..2] }
}

/// The outcomes in the most welcome type. As one array they can only be written if all are there and alike; a client
/// that takes nothing else is told so.
pub(crate) fn write(mut items: Vec<Item>, accept: &Accept, request_id: &str) -> Result<Outcomes, Failure> {
    let failed = |items: &[Item]| items.iter().filter(|item| item.is_err()).count();
    if accept.best(&[JSON, MSGPACK, NPY]) == Some(NPY)
        && let Some(body) = stacked(&items)
    {
        return Ok(Outcomes { media: NPY, body, failed: 0, all_failed: None });
    }
    if failed(&items) == items.len() && !items.is_empty() {
        return Ok(nothing_but_problems(items, request_id));
    }
    let Some(media) = accept.best(&[JSON, MSGPACK]) else { return Err(no_array(&items)) };
    let room = items.iter().map(|item| item.as_ref().map_or(256, |parts| render::room(parts) + 16)).sum::<usize>();
    let mut body = Vec::with_capacity(room + 64);
    let mut writer = if media == MSGPACK { Writer::Msgpack(&mut body) } else { Writer::Json(&mut body) };
    writer.open(items.len());
    for (index, item) in items.iter_mut().enumerate() {
        writer.outcome(index, item, request_id);
    }
    let failed = failed(&items);
    writer.close(failed);
    // What cannot be written has become a problem on the way: perhaps that leaves nothing else.
    if failed == items.len() && failed > 0 {
        return Ok(nothing_but_problems(items, request_id));
    }
    Ok(Outcomes { media, body, failed, all_failed: None })
}

/// All rows as one `.npy` file, if all are there and arrays of one kind.
fn stacked(items: &[Item]) -> Option<Vec<u8>> {
    let mut rows = items.iter().map(|item| match item.as_deref() {
        Ok([part]) if part.name.is_empty() => part.tensor.as_ref().map(|tensor| (tensor, &part.data)),
        _ => None,
    });
    let (first, data) = rows.next()??;
    let all = TensorType {
        dtype: first.dtype,
        shape: std::iter::once(items.len() as u64).chain(first.shape.iter().copied()).collect(),
    };
    let mut body = npy::header(&all);
    body.reserve_exact(data.len() * items.len());
    body.extend_from_slice(data);
    for row in rows {
        let (tensor, data) = row.filter(|(tensor, _)| *tensor == first)?;
        debug_assert_eq!(tensor.byte_len(), Some(data.len() as u64));
        body.extend_from_slice(data);
    }
    Some(body)
}

fn no_array(items: &[Item]) -> Failure {
    let why = match items.iter().find_map(|item| item.as_ref().err()) {
        Some(first) => format!("some items failed, the first because: {}", first.detail),
        None if items.is_empty() => "there are no items".to_owned(),
        None => "they are not arrays of one dtype and shape".to_owned(),
    };
    let detail = format!("the answers cannot be one array: {why}; accept application/json or application/msgpack too");
    Failure::new(Outcome::NotAcceptable, detail)
}

/// A problem with those of all items in it.
#[derive(Serialize)]
struct AllFailed<'a> {
    #[serde(flatten)]
    first: Document<'a>,
    outcomes: Vec<Failed<'a>>,
    failed: usize,
}

#[derive(Serialize)]
struct Failed<'a> {
    problem: Document<'a>,
}

fn nothing_but_problems(items: Vec<Item>, request_id: &str) -> Outcomes {
    let failures: Vec<Failure> = items.into_iter().filter_map(Result::err).collect();
    let problem = |failure| Failed { problem: Document::of(failure, request_id) };
    let failed = failures.len();
    let mut first = failures[0].clone();
    if failed > 1 {
        first.detail = format!("all {failed} items failed, the first because: {}", first.detail);
    }
    let document =
        AllFailed { first: Document::of(&first, request_id), outcomes: failures.iter().map(problem).collect(), failed };
    let body = serde_json::to_vec(&document).unwrap_or_default();
    Outcomes { media: "application/problem+json", body, failed, all_failed: Some(first) }
}

/// Writes `{"outcomes": [{"value": …}, {"problem": {…}}], "failed": 1}`.
enum Writer<'a> {
    Json(&'a mut Vec<u8>),
    Msgpack(&'a mut Vec<u8>),
}

impl Writer<'_> {
    fn open(&mut self, items: usize) {
        match self {
            Writer::Json(body) => body.extend_from_slice(b"{\"outcomes\":["),
            Writer::Msgpack(body) => {
                // A Vec takes every byte, here and below.
                let _ = rmp::encode::write_map_len(body, 2);
                let _ = rmp::encode::write_str(body, "outcomes");
                let _ = rmp::encode::write_array_len(body, items as u32);
            }
        }
    }

    /// Writes one outcome. A value that cannot be written becomes a problem.
    fn outcome(&mut self, index: usize, item: &mut Item, request_id: &str) {
        if let (Writer::Json(body), true) = (&mut *self, index > 0) {
            body.push(b',');
        }
        let start = self.body().len();
        if let Ok(parts) = item {
            match self.value(parts) {
                Ok(()) => return,
                Err(failure) => {
                    self.body().truncate(start);
                    *item = Err(failure);
                }
            }
        }
        if let Err(failure) = item {
            fault::tell(request_id, failure);
            self.problem(&Failed { problem: Document::of(failure, request_id) });
        }
    }

    fn value(&mut self, parts: &[OutputPart]) -> Result<(), Failure> {
        match self {
            Writer::Json(body) => {
                body.extend_from_slice(b"{\"value\":");
                render::json(body, parts)?;
                body.push(b'}');
                Ok(())
            }
            Writer::Msgpack(body) => {
                let _ = rmp::encode::write_map_len(body, 1);
                let _ = rmp::encode::write_str(body, "value");
                render::msgpack(body, parts)
            }
        }
    }

    fn problem(&mut self, problem: &Failed<'_>) {
        match self {
            Writer::Json(body) => drop(serde_json::to_writer(&mut **body, problem)),
            Writer::Msgpack(body) => drop(rmp_serde::encode::write_named(*body, problem)),
        }
    }

    fn close(&mut self, failed: usize) {
        match self {
            Writer::Json(body) => body.extend_from_slice(format!("],\"failed\":{failed}}}").as_bytes()),
            Writer::Msgpack(body) => {
                let _ = rmp::encode::write_str(body, "failed");
                let _ = rmp::encode::write_uint(body, failed as u64);
            }
        }
    }

    fn body(&mut self) -> &mut Vec<u8> {
        match self {
            Writer::Json(body) | Writer::Msgpack(body) => body,
        }
    }
}
