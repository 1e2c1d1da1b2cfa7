//! Answers in parts between a program and its server: parts in any number of frames, then one frame that ends the request. The
//! program says what it has taken, and the server sends no more than that plus a window.
//!
//! ```text
//! parts, and the end: entries as in results, of item 0; the end is a frame of answers
//! taken: request u64 | bytes u64
//! ```

use crate::clients::answer_frames::put_values;
use crate::engine::reply::PartValues;
use crate::link::batch_frame::gather;
use crate::link::frame::header::{FrameError, Segments, small_frame};
use crate::link::frame::kind::Kind;
use crate::link::frame::table::TableReader;
use crate::link::results_frame::ResultsWriter;
use crate::values::answer::Answer;
use jitney_core::request::{BatchId, ItemId};
use std::time::Duration;

/// Bytes of one answer that may be on their way to a program, or wait in it. A part that is larger goes alone.
pub(crate) const WINDOW: u64 = 256 << 10;

/// Parts of a request of which `sequence` entries were sent before, and its end if there is one: then the frame is of the kind
/// `last`.
pub(crate) fn parts(last: Kind, id: u64, sequence: u32, parts: &[PartValues], end: Option<&Answer>) -> Segments {
    let entries = parts.len() + usize::from(end.is_some());
    let mut table = ResultsWriter::new(BatchId(id), Duration::ZERO, entries);
    let mut data = Vec::new();
    let item = ItemId(0);
    for (place, part) in parts.iter().enumerate() {
        table.part(item, sequence + place as u32, part.len());
        put_values(&mut table, &mut data, part);
    }
    let sequence = sequence + parts.len() as u32;
    match end.map(|end| (&end.result, &end.end)) {
        None => return gather(table.finish_as(Kind::AnswerParts), data.iter()),
        Some((Err(failure), _)) => table.failed(item, sequence, failure),
        Some((Ok(whole), Some(end))) => {
            table.end(item, sequence, end, whole.len());
            put_values(&mut table, &mut data, whole);
        }
        Some((Ok(whole), None)) => {
            table.values(item, sequence, whole.len());
            put_values(&mut table, &mut data, whole);
        }
    }
    gather(table.finish_as(last), data.iter())
}

/// Says that the program has taken so many bytes of the parts of a request.
pub(crate) fn taken(id: u64, bytes: u64) -> Segments {
    small_frame(Kind::PartsTaken, &[id.to_le_bytes(), bytes.to_le_bytes()].concat())
}

/// Reads the request and the bytes of `taken`.
pub(crate) fn read_taken(table: &[u8]) -> Result<(u64, u64), FrameError> {
    let mut table = TableReader(table);
    Ok((table.u64()?, table.u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::answer_frames;
    use crate::link::frame::reader::{Frame, received};
    use crate::link::results_frame::ItemOutcome;
    use crate::values::answer::{Failure, OutputPart, StreamEnd, Usage};
    use crate::values::tensor::Tag;
    use bytes::Bytes;
    use jitney_core::tables::outcome::Outcome;
    use smallvec::smallvec;

    fn part(text: &'static str) -> PartValues {
        let data = Bytes::from_static(text.as_bytes());
        smallvec![OutputPart { name: "".into(), tag: Tag::Text, tensor: None, media_type: None, data }]
    }

    fn ended() -> Answer {
        let end = StreamEnd { reason: "length".into(), usage: Some(Usage { input: 3, output: 2 }) };
        Answer { result: Ok(part("whole")), end: Some(Box::new(end)), ..Answer::failed(Failure::new(Outcome::Ok, "")) }
    }

    #[test]
    fn parts_and_their_end_arrive_as_they_were_sent() {
        let frame = received(&parts(Kind::Answers, 7, 4, &[part("a"), part("bc")], None));
        assert_eq!(frame.kind, Kind::AnswerParts);
        let (id, entries) = answer_frames::read(&frame).unwrap();
        let sequence: Vec<u32> = entries.iter().map(|entry| entry.sequence).collect();
        assert_eq!((id, &sequence[..]), (7, &[4, 5][..]));
        let ItemOutcome::Part(values) = &entries[1].outcome else { panic!("no part") };
        assert_eq!(&values[0].data[..], b"bc");
        let frame = received(&parts(Kind::Answers, 7, 6, &[part("d")], Some(&ended())));
        assert_eq!(frame.kind, Kind::Answers);
        let (_, entries) = answer_frames::read(&frame).unwrap();
        assert!(matches!(entries[0].outcome, ItemOutcome::Part(_)) && entries[1].sequence == 7);
        let ItemOutcome::End(whole, end) = &entries[1].outcome else { panic!("no end") };
        assert_eq!((&whole[0].data[..], &*end.reason, end.usage.unwrap().output), (&b"whole"[..], "length", 2));
        let failed = Answer::failed(Failure::new(Outcome::WorkerLost, "gone"));
        let (_, entries) = answer_frames::read(&received(&parts(Kind::Answers, 8, 0, &[], Some(&failed)))).unwrap();
        assert!(matches!(&entries[0].outcome, ItemOutcome::Failed(failure) if failure.detail == "gone"));
    }

    #[test]
    fn what_was_taken_arrives_as_it_was_sent() {
        let frame = received(&taken(9, u64::MAX));
        assert_eq!((frame.kind, read_taken(&frame.table).unwrap()), (Kind::PartsTaken, (9, u64::MAX)));
        assert!(read_taken(&frame.table[..15]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_stranger_sends_is_read_or_refused(
            table in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            payload in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100),
            at in 0usize..400,
            byte: u8,
        ) {
            let _ = read_taken(&table);
            let frame = |table: Vec<u8>, payload: Vec<u8>| {
                Frame { kind: Kind::AnswerParts, table: table.into(), payload: Bytes::from(payload).into() }
            };
            let _ = answer_frames::read(&frame(table, payload));
            // Nearly right is where a reader goes wrong.
            let whole = received(&parts(Kind::Answers, 1, 0, &[part("a"), part("b")], Some(&ended())));
            let mut table = whole.table.to_vec();
            let at = at % table.len();
            table[at] = byte;
            let _ = answer_frames::read(&frame(table, whole.payload.to_bytes().to_vec()));
        }
    }
}
