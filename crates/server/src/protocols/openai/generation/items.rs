//! A request for texts as the items of a deployment: one for each text that is asked for.

use crate::engine::deployment::Deployment;
use crate::engine::request::RequestItems;
use crate::protocols::openai::generation::api::Api;
use crate::protocols::openai::generation::fields::Fields;
use crate::protocols::openai::input::{Input, MOST_INPUTS, inputs, wrong};
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

/// What the items of a request are made of.
pub(super) struct Asked<'a> {
    pub(super) api: Api,
    pub(super) model: &'a str,
    pub(super) fields: &'a Fields<'a>,
    /// Whether a model takes tokens in place of a text.
    pub(super) takes_tokens: bool,
    /// Bytes that all items may have.
    pub(super) most: usize,
}

/// An input: what is to be answered.
enum Written {
    Text(String),
    /// As it stands in the document.
    Json(Vec<u8>),
}

impl Asked<'_> {
    /// The items, the choices of an input next to each other, and how many choices each input has.
    pub(super) fn items(&self, deployment: &Deployment) -> Result<(RequestItems, usize), Failure> {
        let choices = self.fields.count("n", MOST_CHOICES)?;
        let inputs = self.inputs()?;
        let count = inputs.len() * choices;
        if count > MOST_INPUTS {
            let what = format!("{} inputs with {choices} choices each are {count} texts", inputs.len());
            return Err(wrong("n", &format!("{what}; one request may have {MOST_INPUTS}")));
        }
        let manifest = &*deployment.manifest;
        let is_text = manifest.input.kind == InputKind::Text;
        let name = self.api.input();
        let seed = self.seed(choices).filter(|_| property(&manifest.input.schema, "seed").is_some());
        let except: &[&str] = if seed.is_some() { &[name, "seed"] } else { &[name] };
        let rest = self.fields.declared(self.model, &manifest.input.schema, except)?;
        let mut calls = Vec::with_capacity(count);
        let mut bytes = 0;
        for input in inputs {
            let begin = match input {
                Written::Text(text) if is_text => text.into_bytes(),
                Written::Text(text) => object(name, &serde_json::to_vec(&text).unwrap_or_default(), &rest),
                Written::Json(raw) => object(name, &raw, &rest),
            };
            let item = Bytes::from(begin);
            for choice in 0..choices {
                let (tag, data) = match seed {
                    _ if is_text => (Tag::Text, item.clone()),
                    None => (Tag::Json, closed(&item, "")),
                    Some(seed) => {
                        (Tag::Json, closed(&item, &format!(",\"seed\":{}", seed.wrapping_add_unsigned(choice as u64))))
                    }
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
        Ok((RequestItems::new(deployment, calls.into(), 0)?, choices))
    }

    fn inputs(&self) -> Result<Vec<Written>, Failure> {
        let name = self.api.input();
        let missing = || match self.api {
            Api::Chat => wrong(name, "is missing; send a list of messages"),
            Api::Completions => wrong(name, "is missing; send a string"),
        };
        let raw = self.fields.get(name).ok_or_else(missing)?;
        if self.api == Api::Chat {
            return Ok(vec![Written::Json(raw.as_bytes().to_vec())]);
        }
        let read = |input| match input {
            Input::Text(text) => Ok(Written::Text(text)),
            Input::Tokens(tokens) if self.takes_tokens => {
                Ok(Written::Json(serde_json::to_vec(&tokens).unwrap_or_default()))
            }
            Input::Tokens(_) => {
                let what = format!("{} reads texts, not tokens; send strings", self.model);
                Err(wrong(name, &what))
            }
        };
        inputs(name, raw)?.into_iter().map(read).collect()
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
