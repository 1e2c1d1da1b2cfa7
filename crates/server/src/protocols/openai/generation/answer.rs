//! Answers in one piece, and what the answers of both kinds have in common: texts, counts of tokens.

use crate::engine::request::Answers;
use crate::protocols::openai::generation::text_route::TextRoute;
use crate::protocols::reply::value::json_string;
use crate::values::answer::{Answer, Failure, OutputPart, Usage};
use crate::values::tensor::Tag;
use jitney_core::tables::outcome::Outcome;

/// What all chunks of an answer have in common.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    pub(crate) route: TextRoute,
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// The name that the client used.
    pub(crate) model: String,
}

impl Envelope {
    /// The beginning of an answer, or of a chunk, up to its choices.
    pub(super) fn begin(&self, is_chunk: bool) -> Vec<u8> {
        let mut out = b"{\"id\":".to_vec();
        json_string(&mut out, &self.id);
        let (object, created) = (self.route.object(is_chunk), self.created);
        out.extend_from_slice(format!(",\"object\":\"{object}\",\"created\":{created},\"model\":").as_bytes());
        json_string(&mut out, &self.model);
        out.extend_from_slice(b",\"choices\":[");
        out
    }
}

/// Tokens of a request. The choices of one input have the same tokens of input, which count once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens {
    choices: usize,
    /// `None` from models that do not count.
    sum: Option<Usage>,
}

impl Tokens {
    pub(super) fn new(choices: usize) -> Tokens {
        Tokens { choices, sum: None }
    }

    /// Adds those of one item.
    pub(super) fn add(&mut self, item: usize, usage: Option<Usage>) {
        let Some(usage) = usage else { return };
        let sum = self.sum.get_or_insert(Usage { input: 0, output: 0 });
        if item.is_multiple_of(self.choices) {
            sum.input = sum.input.saturating_add(usage.input);
        }
        sum.output = sum.output.saturating_add(usage.output);
    }

    /// As a member of an object, with a comma before it; nothing from models that do not count.
    pub(super) fn written(self) -> Option<String> {
        let Usage { input, output } = self.sum?;
        let total = input.saturating_add(output);
        Some(format!(
            ",\"usage\":{{\"prompt_tokens\":{input},\"completion_tokens\":{output},\"total_tokens\":{total}}}"
        ))
    }
}

/// The text of a part or of an answer.
pub(super) fn text(values: &[OutputPart]) -> Result<&str, Failure> {
    let invalid = || Failure::new(Outcome::InvalidOutput, "the model answered with something else than text");
    match values {
        [part] if part.tag == Tag::Text => std::str::from_utf8(&part.data).map_err(|_| invalid()),
        _ => Err(invalid()),
    }
}

/// The whole answer, if every item has a text.
pub(super) fn write(envelope: &Envelope, choices: usize, answers: Answers) -> Result<Vec<u8>, Failure> {
    let count = answers.len();
    let mut tokens = Tokens::new(choices);
    let mut out = envelope.begin(false);
    for (index, answer) in answers.into_iter().enumerate() {
        let Answer { result, end, .. } = answer;
        let values = result.map_err(|failure| in_place(envelope.route, failure, index / choices, count / choices))?;
        let end = end.unwrap_or_default();
        tokens.add(index, end.usage);
        let comma = if index > 0 { "," } else { "" };
        let before = match envelope.route {
            TextRoute::Chat => "\"message\":{\"role\":\"assistant\",\"content\":",
            TextRoute::Completions => "\"text\":",
        };
        out.extend_from_slice(format!("{comma}{{\"index\":{index},{before}").as_bytes());
        json_string(&mut out, text(&values)?);
        let after = if envelope.route == TextRoute::Chat { ",\"refusal\":null}" } else { "" };
        let reason = envelope.route.finish_reason(&end.reason);
        out.extend_from_slice(format!("{after},\"logprobs\":null,\"finish_reason\":\"{reason}\"}}").as_bytes());
    }
    out.push(b']');
    out.extend(tokens.written().unwrap_or_default().into_bytes());
    out.push(b'}');
    Ok(out)
}

/// Says which of several inputs failed.
fn in_place(route: TextRoute, failure: Failure, index: usize, inputs: usize) -> Failure {
    let is_input = matches!(failure.outcome, Outcome::InvalidInput | Outcome::MalformedBody);
    if !is_input || inputs == 1 {
        return failure;
    }
    let place = format!("{}[{index}]", route.input());
    let detail = format!("{place}: {}", failure.detail);
    let field = failure.field.filter(|field| field.strip_prefix("$.").is_some_and(|field| field != route.input()));
    Failure { detail, field: Some(field.unwrap_or(place)), ..failure }
}
