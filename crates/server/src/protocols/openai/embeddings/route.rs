//! How the route for vectors reads a request and writes its answer. Each input is an item.

use crate::engine::deployment::Deployment;
use crate::engine::request::{Answers, RequestItems};
use crate::engine::server_state::ServerState;
use crate::protocols::exchange::{Decoded, RefusedBody};
use crate::protocols::openai::embeddings::extra_fields::ExtraFields;
use crate::protocols::openai::input::{Body, Input, wrong};
use crate::protocols::openai::model_route::{ModelRoute, decoded};
use crate::protocols::openai::names::find_for;
use crate::protocols::reply::render;
use crate::protocols::reply::value;
use crate::protocols::request::headers::quoted;
use crate::protocols::request::input::{DecodedItem, Reading, take};
use crate::values::answer::{Answer, Failure, OutputPart};
use crate::values::call::Encoding;
use crate::values::chunks::Chunks;
use crate::values::tensor::Tag;
use bytes::Bytes;
use jitney_core::config::manifest::{DeploymentManifest, InputKind, Task, TaskKind};
use jitney_core::tables::outcome::Outcome;

/// What a model takes in addition to texts.
#[derive(Clone, Copy)]
struct Abilities {
    takes_tokens: bool,
    takes_dimensions: bool,
}

impl Abilities {
    fn of(task: Task) -> Option<Abilities> {
        let Task::Embedding { takes_tokens, takes_dimensions } = task else { return None };
        Some(Abilities { takes_tokens, takes_dimensions })
    }
}

/// How the vectors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VectorForm {
    Floats,
    /// float32, little-endian, which the official clients ask for unasked.
    Base64,
}

/// A request for vectors.
pub(crate) struct Embeddings<'a> {
    pub(crate) state: &'a ServerState,
}

/// How its answer is written.
pub(crate) struct VectorsAsked {
    model: String,
    written: VectorForm,
    dimensions: Option<u32>,
}

impl ModelRoute for Embeddings<'_> {
    type Asked = VectorsAsked;

    fn state(&self) -> &ServerState {
        self.state
    }

    fn task(&self) -> TaskKind {
        TaskKind::Embedding
    }

    fn decode_now(&self, mut body: Chunks) -> Result<Decoded<VectorsAsked>, RefusedBody> {
        let bytes = body.contiguous();
        let body = Body::read(bytes)?;
        let (deployment, abilities) = find_for(self.state, &body.model, self.task(), Abilities::of)?;
        let read = decode(self.state, bytes, &body, (&body.model, &deployment, abilities));
        decoded(deployment, read)
    }

    fn write_body(&self, asked: VectorsAsked, answers: Answers) -> Result<Vec<u8>, Failure> {
        write(&answers, &asked)
    }
}

/// The items of a body for this deployment. What is wrong with one of them is wrong with the request: this API has no
/// partial answers.
fn decode(
    state: &ServerState,
    bytes: &[u8],
    body: &Body,
    (model, deployment, abilities): (&str, &Deployment, Abilities),
) -> Result<(RequestItems, VectorsAsked), Failure> {
    let Abilities { takes_tokens, takes_dimensions } = abilities;
    let written = match body.encoding_format.as_deref() {
        None | Some("float") => VectorForm::Floats,
        Some("base64") => VectorForm::Base64,
        Some(other) => {
            let what = format!("expected float or base64, got {}", quoted(other.as_bytes()));
            return Err(wrong("encoding_format", &what));
        }
    };
    let dimensions = body.dimensions()?;
    if dimensions.is_some() && !takes_dimensions {
        return Err(wrong("dimensions", &format!("the vectors of {model} have one length; leave it out")));
    }
    let inputs = body.inputs()?;
    if !takes_tokens && inputs.iter().any(|input| matches!(input, Input::Tokens(_))) {
        let what = format!("{model} reads texts, not tokens: tokens mean something to one model only; send strings");
        return Err(wrong("input", &what));
    }
    let most = state.options.max_body_len();
    let manifest = &*deployment.manifest;
    let extra = ExtraFields::read(bytes, &manifest.input, dimensions)?;
    let count = inputs.len();
    extra.check_room(count, bytes.len())?;
    let items = inputs.into_iter().enumerate().map(|(index, input)| {
        let taken = item(manifest, input, &extra, most);
        taken.map(|taken| Ok(taken.call(Encoding::Json))).map_err(|failure| in_place(failure, index, count))
    });
    // They share nothing with the body.
    let items = RequestItems::new(deployment, items.collect::<Result<_, Failure>>()?, 0)?;
    Ok((items, VectorsAsked { model: model.to_owned(), written, dimensions }))
}

/// One input as the deployment's own route would have got it.
fn item(manifest: &DeploymentManifest, input: Input, extra: &ExtraFields, most: usize) -> Result<DecodedItem, Failure> {
    let (tag, data) = match (manifest.input.kind, input) {
        (InputKind::Text, Input::Text(text)) => (Tag::Text, text.into_bytes()),
        (_, Input::Text(text)) => (Tag::Json, extra.item(&text)),
        (_, Input::Tokens(tokens)) => (Tag::Json, extra.item(&tokens)),
    };
    take(manifest, Reading::As(tag), Chunks::from(Bytes::from(data)), most)
}

/// The answer, if every item has a vector.
fn write(answers: &[Answer], asked: &VectorsAsked) -> Result<Vec<u8>, Failure> {
    let &VectorsAsked { ref model, written, dimensions } = asked;
    let parts = answers.iter().flat_map(|answer| &answer.result);
    let room: usize = parts.map(|parts| render::room(parts) + 64).sum();
    let mut body = Vec::with_capacity(room + 128);
    body.extend_from_slice(b"{\"object\":\"list\",\"data\":[");
    for (index, answer) in answers.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(b"{\"object\":\"embedding\",\"index\":");
        body.extend_from_slice(itoa::Buffer::new().format(index).as_bytes());
        body.extend_from_slice(b",\"embedding\":");
        let parts = answer.result.as_ref().map_err(|failure| in_place(failure.clone(), index, answers.len()))?;
        let vector = vector(parts, dimensions)?;
        match written {
            VectorForm::Floats => {
                check_finite(vector, index)?;
                value::json(&mut body, std::slice::from_ref(vector))
            }
            VectorForm::Base64 => value::base64_f32(&mut body, vector),
        }?;
        body.push(b'}');
    }
    body.extend_from_slice(b"],\"model\":");
    value::json_string(&mut body, model);
    let tokens = answers.iter().fold(0_u64, |sum, answer| sum.saturating_add(answer.tokens.unwrap_or(0)));
    body.extend_from_slice(format!(",\"usage\":{{\"prompt_tokens\":{tokens},\"total_tokens\":{tokens}}}}}").as_bytes());
    Ok(body)
}

/// The one vector of an answer.
fn vector(parts: &[OutputPart], dimensions: Option<u32>) -> Result<&OutputPart, Failure> {
    let invalid = |what: &str| Failure::new(Outcome::InvalidOutput, what.to_owned());
    let [part] = parts else { return Err(invalid("the model returned several arrays, not one vector")) };
    let shape = part.tensor.as_ref().map(|tensor| &tensor.shape[..]);
    match (shape, dimensions) {
        // Only the model knows how many it has.
        (Some([length]), Some(asked)) if *length < u64::from(asked) => {
            Err(wrong("dimensions", &format!("the model has {length}, not {asked}; ask for fewer")))
        }
        (Some([length]), Some(asked)) if *length > u64::from(asked) => {
            Err(invalid(&format!("the model was asked for {asked} dimensions and returned {length}")))
        }
        (Some([_]), _) => Ok(part),
        _ => Err(invalid("the model returned something else than a vector of one axis")),
    }
}

/// Clients read `null` in a vector as 0, or fail far from here.
fn check_finite(vector: &OutputPart, index: usize) -> Result<(), Failure> {
    let place = vector.tensor.as_ref().and_then(|tensor| value::not_finite(tensor.dtype, &vector.data));
    place.map_or(Ok(()), |place| {
        let field = format!("data[{index}].embedding[{place}]");
        let detail = format!(
            "{field}: the model returned NaN or an infinity, which JSON does not have; encoding_format base64 does"
        );
        Err(Failure { field: Some(field), ..Failure::new(Outcome::InvalidOutput, detail) })
    })
}

/// Says which of several inputs failed. A field that all of them have is the request's own.
fn in_place(failure: Failure, index: usize, items: usize) -> Failure {
    let is_input = matches!(failure.outcome, Outcome::InvalidInput | Outcome::MalformedBody);
    if !is_input {
        return failure;
    }
    let field = failure.field.as_deref().and_then(|field| field.strip_prefix("$."));
    if let Some(field) = field.filter(|field| field.split(['.', '[']).next() != Some("input")) {
        return Failure { field: Some(field.to_owned()), ..failure };
    }
    let place = if items > 1 { format!("input[{index}]") } else { "input".to_owned() };
    Failure { detail: format!("{place}: {}", failure.detail), field: Some(place), ..failure }
}
