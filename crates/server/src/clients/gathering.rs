//! Whole answers, gathered from the entries of a request.

use crate::link::frame::header::FrameError;
use crate::link::results_frame::{ItemOutcome, ItemResult};
use crate::values::answer::{Answer, Failure, OutputPart, Timing};
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;

/// The answers of one request.
#[derive(Debug)]
pub(crate) struct Gathering {
    items: Vec<Item>,
}

#[derive(Clone, Debug, Default)]
struct Item {
    /// Entries that have come.
    sequence: u32,
    /// Values of the parts, in order.
    parts: SmallVec<[OutputPart; 1]>,
    end: Option<Answer>,
}

impl Gathering {
    /// Of a request with this many items.
    pub(crate) fn new(items: usize) -> Gathering {
        Gathering { items: vec![Item::default(); items] }
    }

    /// How many items the request has.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Takes entries. An error if one names an item that is not there or has ended, or is out of sequence.
    pub(crate) fn add(&mut self, entries: Vec<ItemResult>) -> Result<(), FrameError> {
        for ItemResult { id, sequence, outcome } in entries {
            let item = usize::try_from(id.0).ok().and_then(|place| self.items.get_mut(place));
            let item = item.ok_or(FrameError::Table("an answer is of an item that the request does not have"))?;
            if item.end.is_some() || sequence != item.sequence {
                return Err(FrameError::Table("the answers of an item are out of sequence"));
            }
            item.sequence += 1;
            let mut stream_end = None;
            let result = match outcome {
                ItemOutcome::Part(parts) => {
                    item.parts.extend(parts);
                    continue;
                }
                ItemOutcome::Values(last) if item.parts.is_empty() => Ok(last),
                ItemOutcome::Values(last) => {
                    item.parts.extend(last);
                    Ok(std::mem::take(&mut item.parts))
                }
                // A caller that takes no parts gets the whole answer with the end.
                ItemOutcome::End(whole, end) => {
                    stream_end = Some(end);
                    Ok(whole)
                }
                ItemOutcome::Failed(failure) => Err(failure),
                ItemOutcome::LeftOut | ItemOutcome::Later => Err(missing()),
            };
            item.end = Some(Answer { result, timing: Timing::default(), tokens: None, end: stream_end });
        }
        Ok(())
    }

    /// An answer per item, in order. An item that has not ended fails.
    pub(crate) fn finish(self) -> Vec<Answer> {
        self.items.into_iter().map(|item| item.end.unwrap_or_else(|| Answer::failed(missing()))).collect()
    }
}

fn missing() -> Failure {
    Failure::new(Outcome::Internal, "the server has no outcome for this item")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tensor::Tag;
    use bytes::Bytes;
    use jitney_core::request::ItemId;
    use smallvec::smallvec;

    fn entry(id: u64, sequence: u32, text: &'static str, is_end: bool) -> ItemResult {
        let data = Bytes::from_static(text.as_bytes());
        let values = smallvec![OutputPart { name: "".into(), tag: Tag::Text, tensor: None, media_type: None, data }];
        let outcome = if is_end { ItemOutcome::Values(values) } else { ItemOutcome::Part(values) };
        ItemResult { id: ItemId(id), sequence, outcome }
    }

    #[test]
    fn parts_and_ends_in_any_frames_make_whole_answers() {
        let mut gathering = Gathering::new(3);
        gathering.add(vec![entry(1, 0, "b1", false), entry(2, 0, "c", true)]).unwrap();
        gathering.add(vec![entry(0, 0, "a1", false), entry(1, 1, "b2", false)]).unwrap();
        gathering.add(vec![entry(1, 2, "b3", true)]).unwrap();
        let texts = |answer: &Answer| -> String {
            let parts = answer.result.as_ref().unwrap();
            parts.iter().map(|part| std::str::from_utf8(&part.data).unwrap()).collect()
        };
        let answers = gathering.finish();
        assert_eq!(answers[0].outcome(), Outcome::Internal, "it has parts and no end");
        assert_eq!([texts(&answers[1]), texts(&answers[2])], ["b1b2b3", "c"]);
    }

    #[test]
    fn what_is_out_of_sequence_is_refused() {
        for wrong in
            [entry(0, 1, "", true), entry(3, 0, "", true), entry(u64::MAX, 0, "", true), entry(1, 1, "", false)]
        {
            let mut gathering = Gathering::new(3);
            gathering.add(vec![entry(1, 0, "", true)]).unwrap();
            assert!(gathering.add(vec![wrong]).is_err());
        }
    }
}
