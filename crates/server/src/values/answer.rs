//! How an item ended: values as they left the worker, or the failure, and where the time went.

use crate::values::tensor::{Tag, TensorType};
use bytes::Bytes;
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;
use std::time::Duration;

/// One value of an answer, as it left the worker.
#[derive(Clone, Debug)]
pub struct OutputPart {
    /// Empty when the answer is one unnamed value, else the name of this array.
    pub name: Box<str>,
    /// How to read `data`.
    pub tag: Tag,
    /// Set when `tag` is `Tensor`: this item's row, without the batch axis.
    pub tensor: Option<TensorType>,
    /// Of bytes their media type, e.g. `image/png`. Behind it, or behind nothing, may be headers of the author's: a line each, as
    /// in `x-shade: grey`.
    pub media_type: Option<Box<str>>,
    /// The bytes, a slice of the worker's buffer.
    pub data: Bytes,
}

impl OutputPart {
    /// Its media type without the author's headers.
    pub fn media_type(&self) -> Option<&str> {
        self.media_type.as_deref().and_then(|text| text.split('\n').next()).filter(|media| !media.is_empty())
    }

    /// The headers that the author gives to an answer over HTTP.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.media_type.as_deref().unwrap_or("").split('\n').skip(1).filter_map(|line| line.split_once(": "))
    }
}

/// A request that ended without a result.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which row of the table.
    pub outcome: Outcome,
    /// What was wrong, with which value, and what to do: shown to the client.
    pub detail: String,
    /// The field of the input that is the cause, e.g. `$.width`.
    pub field: Option<String>,
    /// A status that the model's author chose instead of the table's.
    pub status: Option<u16>,
    /// When to come back.
    pub retry_after: Option<Duration>,
    /// What an exception of the model says, for the log; `None` if the failure is not the model's.
    pub model_text: Option<String>,
    /// So many bytes at the beginning of that text are names of the stages that it passed through, which are public.
    pub stage_bytes: u16,
}

impl Failure {
    /// A failure with nothing but its reason.
    pub fn new(outcome: Outcome, detail: impl Into<String>) -> Failure {
        Failure {
            outcome,
            detail: detail.into(),
            field: None,
            status: None,
            retry_after: None,
            model_text: None,
            stage_bytes: 0,
        }
    }

    /// Makes it fit for a client who is not the author of the model: what an exception of the model says may hold paths,
    /// queries and inputs of others, so it stays in the log. The name of a stage is public.
    pub fn hide_model_text(&mut self) {
        if let Some(text) = &self.model_text {
            let stage = text.get(..self.stage_bytes.into()).unwrap_or_default();
            self.detail =
                format!("{stage}the model failed on this input; the server's log says why, next to the request id");
        }
    }
}

/// Where the time of a request went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// From arrival to the launch of its batch.
    pub queue: Duration,
    /// From launch to results, without the model.
    pub batch: Duration,
    /// `predict` itself.
    pub model: Duration,
    /// Items in the batch; 0 if it never was in one.
    pub batch_size: u32,
}

impl Timing {
    /// From arrival to results.
    pub fn total(&self) -> Duration {
        self.queue + self.batch + self.model
    }
}

/// Tokens that a model counted for one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the input.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
}

/// What a model that answers in parts says at the end of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// Why the answer ended, as in `stop` or `length`.
    pub reason: Box<str>,
    /// `None` from models that do not count.
    pub usage: Option<Usage>,
}

impl Default for StreamEnd {
    /// The end of an answer whose model does not say why it ended.
    fn default() -> StreamEnd {
        StreamEnd { reason: "stop".into(), usage: None }
    }
}

/// How a call ended. Every call gets exactly one.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The values, or why there are none.
    pub result: Result<SmallVec<[OutputPart; 1]>, Failure>,
    /// Where the time went.
    pub timing: Timing,
    /// How many tokens it took, from models that count them.
    pub tokens: Option<u64>,
    /// From models that answer in parts: why it ended.
    pub end: Option<Box<StreamEnd>>,
}

impl Answer {
    /// Of a call that never reached a model.
    pub fn failed(failure: Failure) -> Answer {
        Answer { result: Err(failure), timing: Timing::default(), tokens: None, end: None }
    }

    /// How a request with these answers ended, and the timing of its slowest item. It succeeded if one of its items did.
    pub(crate) fn summary(answers: &[Answer]) -> (Outcome, Timing) {
        let outcomes = || answers.iter().map(Answer::outcome);
        let outcome = outcomes().find(|&outcome| outcome == Outcome::Ok).or(outcomes().next()).unwrap_or(Outcome::Ok);
        let slowest = answers.iter().map(|answer| answer.timing).max_by_key(Timing::total);
        (outcome, slowest.unwrap_or_default())
    }

    /// Bytes of its values.
    pub(crate) fn bytes(&self) -> usize {
        self.result.as_ref().map_or(0, |parts| parts.iter().map(|part| part.data.len()).sum())
    }

    /// Which row of the table.
    pub fn outcome(&self) -> Outcome {
        self.result.as_ref().map_or_else(|failure| failure.outcome, |_| Outcome::Ok)
    }
}

/// The name of the part in which a worker sends how many tokens an item took. No parameter or field can be called so.
const TOKENS: &str = "$tokens";

/// Takes the count of tokens out of what a worker sent; what is left is the answer itself.
pub(crate) fn take_tokens(parts: &mut SmallVec<[OutputPart; 1]>) -> Option<u64> {
    let place = parts.iter().position(|part| &*part.name == TOKENS)?;
    let part = parts.remove(place);
    let bytes = part.data.as_ref().try_into().ok()?;
    u64::try_from(i64::from_le_bytes(bytes)).ok()
}
