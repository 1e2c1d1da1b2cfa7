//! A request as the items of a deployment: one for each text or image that is asked for.

use crate::engine::deployment::Deployment;
use crate::engine::request::RequestItems;
use crate::protocols::openai::generation::fields::Fields;
use crate::protocols::openai::generation::text_route::TextRoute;
use crate::protocols::openai::input;
use crate::protocols::openai::input::{Input, MOST_INPUTS, wrong};
use crate::protocols::request::input::{Reading, take};
use crate::protocols::request::schema::property;
use crate::values::answer::Failure;
use crate::values::call::Encoding;
use crate::values::chunks::Chunks;
use crate::values::tensor::Tag;
use bytes::Bytes;
use jitney_core::config::manifest::InputKind;
use jitney_core::tables::outcome::Outcome;

/// Most answers to one input, as OpenAI has it.
pub(crate) const MOST_CHOICES: usize = 128;

/// What the items of a request have in common.
pub(crate) struct ItemTemplate<'a> {
    pub(crate) model: &'a str,
    pub(crate) fields: &'a Fields<'a>,
    /// The field of an item that has its input.
    pub(crate) input: &'a str,
    /// Members of the request that the front has read.
    pub(crate) read: &'a [&'a str],
    /// Members that the front adds to each item, with a comma before each.
    pub(crate) added: String,
    /// Bytes that all items may have.
    pub(crate) most: usize,
}

/// An input: what is to be answered.
pub(crate) enum ItemInput {
    Text(String),
    /// As it stands in the document.
    Json(Vec<u8>),
}

/// The inputs of a request for texts.
pub(super) fn inputs(
    route: TextRoute,
    model: &str,
    fields: &Fields,
    takes_tokens: bool,
) -> Result<Vec<ItemInput>, Failure> {
    let name = route.input();
    let missing = || match route {
        TextRoute::Chat => wrong(name, "is missing; send a list of messages"),
        TextRoute::Completions => wrong(name, "is missing; send a string"),
    };
    let raw = fields.get(name).ok_or_else(missing)?;
    if route == TextRoute::Chat {
        return Ok(vec![ItemInput::Json(raw.as_bytes().to_vec())]);
    }
    let read = |input| match input {
        Input::Text(text) => Ok(ItemInput::Text(text)),
        Input::Tokens(tokens) if takes_tokens => Ok(ItemInput::Json(serde_json::to_vec(&tokens).unwrap_or_default())),
        Input::Tokens(_) => Err(wrong(name, &format!("{model} reads texts, not tokens; send strings"))),
    };
    input::inputs(name, raw)?.into_iter().map(read).collect()
}

impl ItemTemplate<'_> {
    /// The items of so many answers to each input. Those to one input are next to each other.
    pub(crate) fn items(
        &self,
        deployment: &Deployment,
        inputs: Vec<ItemInput>,
        choices: usize,
    ) -> Result<RequestItems, Failure> {
        let count = inputs.len() * choices;
        if count > MOST_INPUTS {
            let what = format!("{} inputs with {choices} choices each are {count} texts", inputs.len());
            return Err(wrong("n", &format!("{what}; one request may have {MOST_INPUTS}")));
        }
        let manifest = &*deployment.manifest;
        let is_text = manifest.input.kind == InputKind::Text;
        let seed = self.seed(choices).filter(|_| property(&manifest.input.schema, "seed").is_some());
        let mut read = vec![self.input];
        read.extend(self.read);
        read.extend(seed.map(|_| "seed"));
        let declared = self.fields.declared(self.model, &manifest.input.schema, &read)?;
        let rest = [self.added.as_bytes(), &declared].concat();
        let mut calls = Vec::with_capacity(count);
        let mut bytes = 0;
        for input in inputs {
            let item = Bytes::from(match input {
                ItemInput::Text(text) if is_text => text.into_bytes(),
                ItemInput::Text(text) => object(self.input, &serde_json::to_vec(&text).unwrap_or_default(), &rest),
                ItemInput::Json(raw) => object(self.input, &raw, &rest),
            });
            for choice in 0..choices {
                let seed = seed.map(|seed| format!(",\"seed\":{}", seed.wrapping_add_unsigned(choice as u64)));
                let (tag, data) = match seed {
                    _ if is_text => (Tag::Text, item.clone()),
                    seed => (Tag::Json, closed(&item, &seed.unwrap_or_default())),
                };
                bytes += data.len();
                if bytes > self.most {
                    return Err(too_large(count, self.most));
                }
                let taken = take(manifest, Reading::As(tag), Chunks::from(data), self.most)?;
                calls.push(Ok(taken.call(Encoding::Json)));
            }
        }
        // They share nothing with the body.
        RequestItems::new(deployment, calls.into(), 0)
    }

    /// The seed of the first choice, if there are several. The model's checks refuse a seed that is not a whole number.
    fn seed(&self, choices: usize) -> Option<i64> {
        self.fields.get("seed").filter(|_| choices > 1)?.parse().ok()
    }
}

/// The beginning of an item: all but its seed and its end.
fn object(name: &str, input: &[u8], rest: &[u8]) -> Vec<u8> {
    [b"{\"", name.as_bytes(), b"\":", input, rest].concat()
}

fn closed(item: &[u8], seed: &str) -> Bytes {
    [item, seed.as_bytes(), b"}"].concat().into()
}

fn too_large(count: usize, most: usize) -> Failure {
    let detail = format!(
        "n: the {count} items of this request have more than {most} bytes, which is what a body may have \
         (max_body_bytes); ask for fewer"
    );
    Failure { field: Some("n".into()), ..Failure::new(Outcome::TooLarge, detail) }
}
