//! `POST /v2/models/{model}/generate` and `…/generate_stream`: one item as a JSON object, whose keys are inputs of the model,
//! and its answer as one object or as an event for each part.

mod item;
mod outputs;

use crate::base::offload;
use crate::engine::deployment::Deployment;
use crate::engine::request;
use crate::engine::request::{Answers, RequestItems};
use crate::engine::server_state::ServerState;
use crate::protocols::exchange::{Decoded, Dialect, RefusedBody, Written};
use crate::protocols::native::pages::reply;
use crate::protocols::open_inference::error;
use crate::protocols::open_inference::generate::item::GenerateRequest;
use crate::protocols::open_inference::generate::outputs::{GenerateEvents, OutputWriter};
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::problem::ProblemForm;
use crate::protocols::request::media::{BodyType, body_type, check_content_encoding, content_type, wrong_type};
use crate::protocols::request::terms::allowed;
use crate::values::answer::{Answer, Failure, Timing};
use crate::values::call::Encoding;
use crate::values::chunks::Chunks;
use hyper::header::HeaderMap;
use jitney_core::tables::outcome::Outcome;
use smallvec::smallvec;
use std::sync::Arc;
use std::time::Duration;

/// A request of Triton's generate extension.
pub(crate) struct Generate<'a> {
    pub(crate) state: &'a ServerState,
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) is_streamed: bool,
}

impl Generate<'_> {
    fn decode_now(&self, mut body: Chunks) -> Result<Decoded<OutputWriter>, RefusedBody> {
        let deployment = self.deployment.clone();
        let most = usize::try_from(self.state.options.max_body_bytes).unwrap_or(usize::MAX);
        let length = body.len();
        let read = item::read(&deployment.manifest, &deployment.signature, body.contiguous(), most)?;
        let GenerateRequest { item, id, wishes, says_text } = read;
        let asked = id.len() + wishes.bytes();
        let calls = smallvec![Ok(item.call(Encoding::Json))];
        let items = RequestItems::with_asked(&deployment, calls, length, asked)?;
        let writer = OutputWriter::new(&deployment, &id, says_text);
        Ok(Decoded { deployment, items, timeout: wishes.timeout, priority: wishes.priority, asked: writer })
    }
}

impl Dialect for Generate<'_> {
    type Head = ();
    type Asked = OutputWriter;
    type Output = Vec<u8>;

    const FORM: ProblemForm = error::form;

    fn deployment(&self) -> Option<&Deployment> {
        Some(&self.deployment)
    }

    fn allowed(&self) -> Duration {
        allowed(&self.deployment.manifest)
    }

    fn read_head(&self, headers: &HeaderMap) -> Result<(), Failure> {
        check_content_encoding(headers)?;
        // Clients of this route name any type, or none.
        if body_type(headers)? == BodyType::Form {
            return Err(wrong_type(content_type(headers), &["application/json"]));
        }
        Ok(())
    }

    async fn decode(&self, (): &(), body: Chunks) -> Result<Decoded<OutputWriter>, RefusedBody> {
        offload::run(body.len(), || self.decode_now(body)).await
    }

    fn parts(&self, (): &(), asked: &OutputWriter) -> Option<Box<dyn PartsForm>> {
        self.is_streamed.then(|| Box::new(GenerateEvents(asked.clone())) as Box<dyn PartsForm>)
    }

    fn write_weight(&self, (): &(), _asked: &OutputWriter, answers: &[Answer]) -> usize {
        request::weight(answers, |part| part.data.len())
    }

    fn write(
        &self,
        (): &(),
        asked: OutputWriter,
        mut answers: Answers,
        _timing: &Timing,
    ) -> Result<Written<Vec<u8>>, Failure> {
        let missing = || Failure::new(Outcome::Internal, "an answer is missing");
        let values = answers.pop().ok_or_else(missing)?.result?;
        let mut body = Vec::new();
        asked.answer(&mut body, &values)?;
        Ok(Written::ok(body))
    }

    fn reply(&self, body: Vec<u8>) -> Reply {
        reply("application/json", body)
    }
}
