//! How the route for images reads a request and writes its answer.

use crate::engine::deployment::Deployment;
use crate::engine::request::{Answers, RequestItems};
use crate::engine::server_state::ServerState;
use crate::protocols::exchange::{Decoded, RefusedBody};
use crate::protocols::openai::generation::fields::Fields;
use crate::protocols::openai::generation::items;
use crate::protocols::openai::generation::items::ItemTemplate;
use crate::protocols::openai::images::answer;
use crate::protocols::openai::images::events::ImageEvents;
use crate::protocols::openai::images::size;
use crate::protocols::openai::input::wrong;
use crate::protocols::openai::model_route::{ModelRoute, decoded, unix_seconds};
use crate::protocols::openai::names::find_for;
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::request::headers::quoted;
use crate::values::answer::Failure;
use crate::values::chunks::Chunks;
use jitney_core::config::manifest::{Task, TaskKind};
use std::time::SystemTime;

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
    images: answer::ImageEnvelope,
    /// How many previews the client takes, if the answer comes in events.
    previews: Option<usize>,
}

impl Images<'_> {
    fn items(
        &self,
        deployment: &Deployment,
        model: &str,
        fields: &Fields,
    ) -> Result<(RequestItems, ImagesAsked), Failure> {
        check_response_format(fields)?;
        let count = fields.count("n", 1, MOST_IMAGES)?;
        let is_streamed = fields.flag("stream")?;
        if is_streamed && count > 1 {
            return Err(wrong("n", &format!("a stream has one image, got {count}; send n=1, or leave stream out")));
        }
        // How many previews the client takes. A model that declares the field makes as many.
        let previews = fields.count("partial_images", 0, MOST_PREVIEWS)?;
        let prompt = fields.text("prompt")?.ok_or_else(|| wrong("prompt", "is missing; send a string"))?;
        let size = fields.text("size")?;
        let added = size::members(size.as_deref(), model, &deployment.manifest.input.schema)?;
        let read: &[&str] = if added.is_empty() {
            &["response_format", "size"]
        } else {
            &["response_format", "size", "width", "height"]
        };
        let most = self.state.options.max_body_len();
        let template = ItemTemplate { model, fields, input: "prompt", read, added, most };
        let items = template.items(deployment, vec![items::ItemInput::Text(prompt)], count)?;
        let created = unix_seconds(SystemTime::now());
        let images = answer::ImageEnvelope { created, size: size.unwrap_or_else(|| "auto".to_owned()) };
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

impl ModelRoute for Images<'_> {
    type Asked = ImagesAsked;

    fn state(&self) -> &ServerState {
        self.state
    }

    fn task(&self) -> TaskKind {
        TaskKind::Image
    }

    fn decode_now(&self, mut body: Chunks) -> Result<Decoded<ImagesAsked>, RefusedBody> {
        let fields = Fields::read(body.contiguous())?;
        let model = fields.model()?;
        let (deployment, ()) = find_for(self.state, &model, self.task(), |task| (task == Task::Image).then_some(()))?;
        let read = self.items(&deployment, &model, &fields);
        decoded(deployment, read)
    }

    fn parts_form(&self, asked: &ImagesAsked) -> Option<Box<dyn PartsForm>> {
        let form = |most| Box::new(ImageEvents::new(asked.images.clone(), most)) as Box<dyn PartsForm>;
        asked.previews.map(form)
    }

    fn write_body(&self, asked: ImagesAsked, answers: Answers) -> Result<Vec<u8>, Failure> {
        answer::write(&asked.images, answers)
    }
}
