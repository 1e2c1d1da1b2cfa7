//! How the route for images reads a request and writes its answer.

use crate::base::offload;
use crate::engine::deployment::Deployment;
use crate::engine::request;
use crate::engine::request::{Answers, RequestItems};
use crate::engine::server_state::ServerState;
use crate::protocols::exchange::{Decoded, Dialect, RefusedBody, Written};
use crate::protocols::native::pages::reply;
use crate::protocols::openai::embeddings::NO_MODEL;
use crate::protocols::openai::error;
use crate::protocols::openai::generation::fields::Fields;
use crate::protocols::openai::generation::items;
use crate::protocols::openai::generation::items::Asked;
use crate::protocols::openai::images::answer;
use crate::protocols::openai::images::events::ImageEvents;
use crate::protocols::openai::images::size;
use crate::protocols::openai::input::{check_is_json, wrong};
use crate::protocols::openai::names::{find_for, most_patient};
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::problem::ProblemForm;
use crate::protocols::request::headers::quoted;
use crate::values::answer::{Answer, Failure, Timing};
use crate::values::chunks::Chunks;
use hyper::header::HeaderMap;
use jitney_core::config::manifest::{Task, TaskKind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a deployment says that this route can call.
const TASK: TaskKind = TaskKind::Image;
/// Images of one request, as OpenAI has it.
pub(crate) const MOST_IMAGES: usize = 10;
/// Previews of one image, as OpenAI has it.
pub(crate) const MOST_PREVIEWS: usize = 3;

/// A request for images.
pub(crate) struct Images<'a> {
    pub(crate) state: &'a ServerState,
}

/// How its answer is written.
pub(crate) struct ImagesAsked {
    images: answer::ImageTitle,
    /// How many previews the client takes, if the answer comes in events.
    previews: Option<usize>,
}

impl Images<'_> {
    fn decode_now(&self, mut body: Chunks) -> Result<Decoded<ImagesAsked>, RefusedBody> {
        let fields = Fields::read(body.contiguous())?;
        let missing = || wrong("model", "is missing; send the name of a model, see /v1/models");
        let model = fields.text("model")?.ok_or_else(missing)?;
        let (deployment, ()) = find_for(self.state, &model, TASK, |task| (task == Task::Image).then_some(()))?;
        let (items, asked) = self
            .items(&deployment, &model, &fields)
            .map_err(|failure| RefusedBody { failure, deployment: Some(deployment.clone()) })?;
        Ok(Decoded { deployment, items, timeout: None, priority: None, asked })
    }

    fn items(
        &self,
        deployment: &Deployment,
        model: &str,
        fields: &Fields,
    ) -> Result<(RequestItems, ImagesAsked), Failure> {
        check_response_format(fields)?;
        let count = fields.count("n", MOST_IMAGES)?;
        let is_streamed = fields.flag("stream")?;
        if is_streamed && count > 1 {
            return Err(wrong("n", &format!("a stream has one image, got {count}; send n=1, or leave stream out")));
        }
        let previews = previews(fields)?;
        let prompt = fields.text("prompt")?.ok_or_else(|| wrong("prompt", "is missing; send a string"))?;
        let size = fields.text("size")?;
        let added = size::members(size.as_deref(), model, &deployment.manifest.input.schema)?;
        let read: &[&str] = if added.is_empty() {
            &["response_format", "size"]
        } else {
            &["response_format", "size", "width", "height"]
        };
        let most = usize::try_from(self.state.options.max_body_bytes).unwrap_or(usize::MAX);
        let asked = Asked { model, fields, input: "prompt", read, added, most };
        let items = asked.items(deployment, vec![items::ItemInput::Text(prompt)], count)?;
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let images = answer::ImageTitle { created, size: size.unwrap_or_else(|| "auto".to_owned()) };
        Ok((items, ImagesAsked { images, previews: is_streamed.then_some(previews) }))
    }
}

fn check_response_format(fields: &Fields) -> Result<(), Failure> {
    match fields.text("response_format")? {
        Some(other) if other != "b64_json" => {
            let other = quoted(other.as_bytes());
            Err(wrong("response_format", &format!("expected b64_json, got {other}; this server stores no images")))
        }
        _ => Ok(()),
    }
}

/// How many previews the client takes. A model that declares the field makes as many.
fn previews(fields: &Fields) -> Result<usize, Failure> {
    let Some(raw) = fields.get("partial_images") else { return Ok(0) };
    let count = raw.parse().ok().filter(|&count| count <= MOST_PREVIEWS);
    let what = || format!("expected a whole number from 0 to {MOST_PREVIEWS}, got {}", quoted(raw.as_bytes()));
    count.ok_or_else(|| wrong("partial_images", &what()))
}

impl Dialect for Images<'_> {
    type Head = ();
    type Asked = ImagesAsked;
    type Output = Vec<u8>;

    const FORM: ProblemForm = error::form;

    fn deployment(&self) -> Option<&Deployment> {
        None
    }

    /// Which deployment is meant is only known from the body: until then the most patient one counts.
    fn allowed(&self) -> Duration {
        most_patient(self.state, TASK).unwrap_or(NO_MODEL)
    }

    fn read_head(&self, headers: &HeaderMap) -> Result<(), Failure> {
        check_is_json(headers)
    }

    async fn decode(&self, (): &(), body: Chunks) -> Result<Decoded<ImagesAsked>, RefusedBody> {
        offload::run(body.len(), || self.decode_now(body)).await
    }

    fn parts(&self, (): &(), asked: &ImagesAsked) -> Option<Box<dyn PartsForm>> {
        let form = |most| Box::new(ImageEvents::new(asked.images.clone(), most)) as Box<dyn PartsForm>;
        asked.previews.map(form)
    }

    fn write_weight(&self, (): &(), _asked: &ImagesAsked, answers: &[Answer]) -> usize {
        request::weight(answers, |part| part.data.len())
    }

    fn write(
        &self,
        (): &(),
        asked: ImagesAsked,
        answers: Answers,
        _timing: &Timing,
    ) -> Result<Written<Vec<u8>>, Failure> {
        answer::write(&asked.images, answers).map(Written::ok)
    }

    fn reply(&self, body: Vec<u8>) -> Reply {
        reply("application/json", body)
    }
}
