//! How the routes for texts read a request and write its answer.

use crate::base::offload;
use crate::engine::deployment::Deployment;
use crate::engine::request;
use crate::engine::request::Answers;
use crate::engine::server_state::ServerState;
use crate::protocols::exchange::{Decoded, Dialect, RefusedBody, Written};
use crate::protocols::native::pages::reply;
use crate::protocols::openai::embeddings::NO_MODEL;
use crate::protocols::openai::error;
use crate::protocols::openai::generation::answer;
use crate::protocols::openai::generation::answer::Title;
use crate::protocols::openai::generation::api::Api;
use crate::protocols::openai::generation::chunks::ChunkForm;
use crate::protocols::openai::generation::fields::Fields;
use crate::protocols::openai::generation::items;
use crate::protocols::openai::generation::items::{Asked, MOST_CHOICES};
use crate::protocols::openai::input::{check_is_json, wrong};
use crate::protocols::openai::names::{find_for, most_patient};
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::problem::ProblemForm;
use crate::protocols::reply::request_id::RequestId;
use crate::values::answer::{Answer, Failure, Timing};
use crate::values::chunks::Chunks;
use hyper::header::HeaderMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A request for texts.
pub(crate) struct Generation<'a> {
    pub(crate) state: &'a ServerState,
    pub(crate) id: &'a RequestId,
    pub(crate) api: Api,
}

/// How its answer is written.
pub(crate) struct TextsAsked {
    title: Title,
    /// How many texts are asked for each input.
    choices: usize,
    is_streamed: bool,
    includes_usage: bool,
}

impl Generation<'_> {
    fn decode_now(&self, mut body: Chunks) -> Result<Decoded<TextsAsked>, RefusedBody> {
        let api = self.api;
        let fields = Fields::read(body.contiguous())?;
        let missing = || wrong("model", "is missing; send the name of a model, see /v1/models");
        let model = fields.text("model")?.ok_or_else(missing)?;
        let (deployment, takes_tokens) = find_for(self.state, &model, api.task(), |task| api.takes_tokens(task))?;
        let decoded = (|| {
            let (is_streamed, includes_usage) = streaming(&fields)?;
            let most = usize::try_from(self.state.options.max_body_bytes).unwrap_or(usize::MAX);
            let inputs = items::inputs(api, &model, &fields, takes_tokens)?;
            let choices = fields.count("n", MOST_CHOICES)?;
            let (input, added) = (api.input(), String::new());
            let asked = Asked { model: &model, fields: &fields, input, read: &[], added, most };
            Ok((asked.items(&deployment, inputs, choices)?, choices, is_streamed, includes_usage))
        })();
        let (items, choices, is_streamed, includes_usage) =
            decoded.map_err(|failure| RefusedBody { failure, deployment: Some(deployment.clone()) })?;
        let id = format!("{}{}", api.id_prefix(), self.id.text());
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let title = Title { api, id, created, model };
        let asked = TextsAsked { title, choices, is_streamed, includes_usage };
        Ok(Decoded { deployment, items, timeout: None, priority: None, asked })
    }
}

/// Whether the answer comes in parts, and whether a last chunk counts tokens.
fn streaming(fields: &Fields) -> Result<(bool, bool), Failure> {
    let is_streamed = fields.flag("stream")?;
    let Some(options) = fields.object("stream_options")? else { return Ok((is_streamed, false)) };
    if !is_streamed {
        return Err(wrong("stream_options", "only with stream=true; leave it out, or set stream"));
    }
    let in_options = |failure: Failure| wrong("stream_options.include_usage", &failure.detail);
    Ok((true, options.flag("include_usage").map_err(in_options)?))
}

impl Dialect for Generation<'_> {
    type Head = ();
    type Asked = TextsAsked;
    type Output = Vec<u8>;

    const FORM: ProblemForm = error::form;

    fn deployment(&self) -> Option<&Deployment> {
        None
    }

    /// Which deployment is meant is only known from the body: until then the most patient one counts.
    fn allowed(&self) -> Duration {
        most_patient(self.state, self.api.task()).unwrap_or(NO_MODEL)
    }

    fn read_head(&self, headers: &HeaderMap) -> Result<(), Failure> {
        check_is_json(headers)
    }

    async fn decode(&self, (): &(), body: Chunks) -> Result<Decoded<TextsAsked>, RefusedBody> {
        offload::run(body.len(), || self.decode_now(body)).await
    }

    fn parts(&self, (): &(), asked: &TextsAsked) -> Option<Box<dyn PartsForm>> {
        let form = || ChunkForm::new(&asked.title, asked.choices, asked.includes_usage);
        asked.is_streamed.then(|| Box::new(form()) as Box<dyn PartsForm>)
    }

    fn write_weight(&self, (): &(), _asked: &TextsAsked, answers: &[Answer]) -> usize {
        request::weight(answers, |part| part.data.len())
    }

    fn write(
        &self,
        (): &(),
        asked: TextsAsked,
        answers: Answers,
        _timing: &Timing,
    ) -> Result<Written<Vec<u8>>, Failure> {
        answer::write(&asked.title, asked.choices, answers).map(Written::ok)
    }

    fn reply(&self, body: Vec<u8>) -> Reply {
        reply("application/json", body)
    }
}
