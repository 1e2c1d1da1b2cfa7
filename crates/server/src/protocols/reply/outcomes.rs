//! The outcomes of many items as one body: each a value or a problem, in the order of the items.

use crate::items::arrays::npy;
use crate::protocols::reply::accept::Accept;
use crate::protocols::reply::failure_log;
use crate::protocols::reply::problem::ProblemDocument;
use crate::protocols::reply::render;
use crate::protocols::reply::render::{JSON, MSGPACK, NPY, OCTETS};
use crate::protocols::reply::value;
use crate::values::answer::{Failure, OutputPart};
use crate::values::tensor::TensorType;
use bytes::Bytes;
use jitney_core::tables::outcome::Outcome;
use serde::Serialize;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// How one item ended.
pub(crate) type ItemValues = Result<SmallVec<[OutputPart; 1]>, Failure>;

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

/// Writes the outcomes in the type that the client prefers. One array is possible only if all items have answers of one
/// type and shape. If the client takes nothing else, this fails and says so.
pub(crate) fn write(
    mut items: Vec<ItemValues>,
    accept: &Accept,
    deployment: &str,
    request_id: &str,
) -> Result<Outcomes, Failure> {
    let failed = |items: &[ItemValues]| items.iter().filter(|item| item.is_err()).count();
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
    // A request that has nothing but problems is one line in the log, which its reply writes.
    items
        .iter()
        .filter_map(|item| item.as_ref().err())
        .for_each(|failure| failure_log::tell(request_id, Some(deployment), failure));
    Ok(Outcomes { media, body, failed, all_failed: None })
}

/// All rows as one `.npy` file, if all are there and arrays of one kind. Nothing is reserved before that is known: the
/// first row may be large, and the others short.
fn stacked(items: &[ItemValues]) -> Option<Vec<u8>> {
    let (first, data) = row(items.first()?)?;
    if !items.iter().all(|item| row(item).is_some_and(|(tensor, its)| tensor == first && its.len() == data.len())) {
        return None;
    }
    let all = TensorType {
        dtype: first.dtype,
        shape: std::iter::once(items.len() as u64).chain(first.shape.iter().copied()).collect(),
    };
    let mut body = npy::header(&all);
    body.reserve_exact(data.len() * items.len());
    items.iter().filter_map(row).for_each(|(_, data)| body.extend_from_slice(data));
    Some(body)
}

/// The array that an item's answer is.
fn row(item: &ItemValues) -> Option<(&TensorType, &Bytes)> {
    match item.as_deref() {
        Ok([part]) if part.name.is_empty() => part.tensor.as_ref().map(|tensor| (tensor, &part.data)),
        _ => None,
    }
}

fn no_array(items: &[ItemValues]) -> Failure {
    let why = match items.iter().find_map(|item| item.as_ref().err()) {
        Some(first) => format!("some items failed, the first because: {}", first.detail),
        None if items.is_empty() => "there are no items".to_owned(),
        None => "they are not arrays of one dtype and shape".to_owned(),
    };
    let detail = format!("the answers cannot be one array: {why}; accept application/json or application/msgpack too");
    Failure::new(Outcome::NotAcceptable, detail)
}

/// What an outcome has next to its value: the media type of bytes, and the headers that the author of the model gave. They
/// differ by item, so they cannot be headers of the whole answer.
#[derive(Serialize)]
struct About<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<&'a str, &'a str>,
}

impl About<'_> {
    /// `None` if there is nothing to say.
    fn of(parts: &[OutputPart]) -> Option<About<'_>> {
        let [part] = parts else { return None };
        let media_type = part.media_type().filter(|&media| media != OCTETS);
        let headers: BTreeMap<_, _> = part.headers().collect();
        (media_type.is_some() || !headers.is_empty()).then_some(About { media_type, headers })
    }
}

/// A problem with those of all items in it.
#[derive(Serialize)]
struct AllFailed<'a> {
    #[serde(flatten)]
    first: ProblemDocument<'a>,
    outcomes: Vec<Failed<'a>>,
    failed: usize,
}

#[derive(Serialize)]
struct Failed<'a> {
    problem: ProblemDocument<'a>,
}

fn nothing_but_problems(items: Vec<ItemValues>, request_id: &str) -> Outcomes {
    let failures: Vec<Failure> = items.into_iter().filter_map(Result::err).collect();
    let problem = |failure| Failed { problem: ProblemDocument::of(failure, request_id) };
    let failed = failures.len();
    let mut first = failures[0].clone();
    if failed > 1 {
        first.detail = format!("all {failed} items failed, the first because: {}", first.detail);
    }
    let document = AllFailed {
        first: ProblemDocument::of(&first, request_id),
        outcomes: failures.iter().map(problem).collect(),
        failed,
    };
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
    fn outcome(&mut self, index: usize, item: &mut ItemValues, request_id: &str) {
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
            self.problem(&Failed { problem: ProblemDocument::of(failure, request_id) });
        }
    }

    fn value(&mut self, parts: &[OutputPart]) -> Result<(), Failure> {
        match self {
            Writer::Json(body) => {
                body.extend_from_slice(b"{\"value\":");
                value::json(body, parts)?;
                if let Some(about) = About::of(parts) {
                    // Its members follow the value: a comma in place of the brace that opens them.
                    let start = body.len();
                    let _ = serde_json::to_writer(&mut **body, &about);
                    body[start] = b',';
                } else {
                    body.push(b'}');
                }
                Ok(())
            }
            Writer::Msgpack(body) => {
                let about = About::of(parts);
                let members = about
                    .as_ref()
                    .map_or(0, |about| u32::from(about.media_type.is_some()) + u32::from(!about.headers.is_empty()));
                let _ = rmp::encode::write_map_len(body, 1 + members);
                let _ = rmp::encode::write_str(body, "value");
                value::msgpack(body, parts)?;
                let Some(About { media_type, headers }) = about else { return Ok(()) };
                if let Some(media_type) = media_type {
                    let _ = rmp::encode::write_str(body, "media_type");
                    let _ = rmp::encode::write_str(body, media_type);
                }
                if !headers.is_empty() {
                    let _ = rmp::encode::write_str(body, "headers");
                    let _ = rmp_serde::encode::write(*body, &headers);
                }
                Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tensor::{Dtype, Tag};
    use smallvec::smallvec;

    fn items(rows: impl IntoIterator<Item = Bytes>) -> Vec<ItemValues> {
        let part = |data: Bytes| {
            let tensor = Some(TensorType { dtype: Dtype::Uint8, shape: smallvec![data.len() as u64] });
            OutputPart { name: "".into(), tag: Tag::Tensor, tensor, media_type: None, data }
        };
        rows.into_iter().map(|data| Ok(smallvec![part(data)])).collect()
    }

    #[test]
    fn rows_that_are_alike_are_one_array() {
        let body = stacked(&items([&[1, 2], &[3, 4]].map(|row| Bytes::from_static(row)))).unwrap();
        assert_eq!((&body[body.len() - 4..], body.starts_with(npy::MAGIC)), (&[1, 2, 3, 4][..], true));
    }

    /// If memory for all rows were reserved first, this would ask for 4 TiB, and the process would end.
    #[test]
    fn a_large_row_before_many_short_ones_reserves_nothing() {
        let short = std::iter::repeat_n(Bytes::from_static(&[7]), 65_535);
        let rows = items(std::iter::once(Bytes::from(vec![0; 64 << 20])).chain(short));
        assert!(stacked(&rows).is_none());
    }
}
