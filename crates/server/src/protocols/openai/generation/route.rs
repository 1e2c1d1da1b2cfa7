//! How the routes for texts read a request and write its answer.

use crate::engine::deployment::Deployment;
use crate::engine::request::{Answers, RequestItems};
use crate::engine::server_state::ServerState;
use crate::protocols::exchange::{Decoded, RefusedBody};
use crate::protocols::openai::generation::answer;
use crate::protocols::openai::generation::answer::Envelope;
use crate::protocols::openai::generation::chunks::ChunkForm;
use crate::protocols::openai::generation::fields::Fields;
use crate::protocols::openai::generation::items;
use crate::protocols::openai::generation::items::{ItemTemplate, MOST_CHOICES};
use crate::protocols::openai::generation::text_route::TextRoute;
use crate::protocols::openai::input::wrong;
use crate::protocols::openai::model_route::{ModelRoute, decoded, unix_seconds};
use crate::protocols::openai::names::find_for;
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::request_id::RequestId;
use crate::values::answer::Failure;
use crate::values::chunks::Chunks;
use jitney_core::config::manifest::TaskKind;
use std::time::SystemTime;

/// A request for texts.
pub(crate) struct Generation<'a> {
    pub(crate) state: &'a ServerState,
    pub(crate) id: &'a RequestId,
    pub(crate) route: TextRoute,
}

/// How its answer is written.
pub(crate) struct TextsAsked {
    envelope: Envelope,
    /// How many texts are asked for each input.
    choices: usize,
    is_streamed: bool,
    includes_usage: bool,
}

impl Generation<'_> {
    fn items(
        &self,
        deployment: &Deployment,
        model: String,
        takes_tokens: bool,
        fields: &Fields,
    ) -> Result<(RequestItems, TextsAsked), Failure> {
        let route = self.route;
        let (is_streamed, includes_usage) = streaming(fields)?;
        let most = self.state.options.max_body_len();
        let inputs = items::inputs(route, &model, fields, takes_tokens)?;
        let choices = fields.count("n", 1, MOST_CHOICES)?;
        let template =
            ItemTemplate { model: &model, fields, input: route.input(), read: &[], added: String::new(), most };
        let items = template.items(deployment, inputs, choices)?;
        let id = format!("{}{}", route.id_prefix(), self.id.text());
        let envelope = Envelope { route, id, created: unix_seconds(SystemTime::now()), model };
        Ok((items, TextsAsked { envelope, choices, is_streamed, includes_usage }))
    }
}

/// Whether the answer comes in parts, and whether a last chunk counts tokens.
fn streaming(fields: &Fields) -> Result<(bool, bool), Failure> {
    let is_streamed = fields.flag("stream")?;
    let Some(options) = fields.object("stream_options")? else { return Ok((is_streamed, false)) };
    if !is_streamed {
        return Err(wrong("stream_options", "only with stream=true; leave it out, or set stream"));
    }
    let in_options = |failure: Failure| {
        let what = failure.detail.strip_prefix("include_usage: ").unwrap_or(&failure.detail);
        wrong("stream_options.include_usage", what)
    };
    Ok((true, options.flag("include_usage").map_err(in_options)?))
}

impl ModelRoute for Generation<'_> {
    type Asked = TextsAsked;

    fn state(&self) -> &ServerState {
        self.state
    }

    fn task(&self) -> TaskKind {
        self.route.task()
    }

    fn decode_now(&self, mut body: Chunks) -> Result<Decoded<TextsAsked>, RefusedBody> {
        let fields = Fields::read(body.contiguous())?;
        let model = fields.model()?;
        let takes_tokens = |task| self.route.takes_tokens(task);
        let (deployment, takes_tokens) = find_for(self.state, &model, self.task(), takes_tokens)?;
        let read = self.items(&deployment, model, takes_tokens, &fields);
        decoded(deployment, read)
    }

    fn parts_form(&self, asked: &TextsAsked) -> Option<Box<dyn PartsForm>> {
        let form = || ChunkForm::new(&asked.envelope, asked.choices, asked.includes_usage);
        asked.is_streamed.then(|| Box::new(form()) as Box<dyn PartsForm>)
    }

    fn write_body(&self, asked: TextsAsked, answers: Answers) -> Result<Vec<u8>, Failure> {
        answer::write(&asked.envelope, asked.choices, answers)
    }
}
