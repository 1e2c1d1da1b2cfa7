//! `POST /{deployment}`: one item in, one answer out.

use crate::base::offload;
use crate::engine::deployment::Deployment;
use crate::engine::request::{Answers, RequestItems};
use crate::engine::server_state::ServerState;
use crate::protocols::exchange::{Decoded, Dialect, RefusedBody, Written};
use crate::protocols::reply::accept::Accept;
use crate::protocols::reply::parts::events::Events;
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::parts::lines::Lines;
use crate::protocols::reply::parts::raw;
use crate::protocols::reply::parts::raw::{Raw, RawType};
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::payload::ReplyBody;
use crate::protocols::reply::problem;
use crate::protocols::reply::problem::ProblemForm;
use crate::protocols::reply::render;
use crate::protocols::reply::render::{EVENTS, JSON, LINES, Rendered};
use crate::protocols::request::input::Reading;
use crate::protocols::request::media::{
    body_type, came_as_form, check_content_encoding, content_type, image_came_as_form,
};
use crate::protocols::request::terms::allowed;
use crate::protocols::request::{form, input};
use crate::values::answer::{Answer, Failure, OutputPart, Timing};
use crate::values::chunks::Chunks;
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use jitney_core::config::manifest::InputKind;
use jitney_core::tables::outcome::Outcome;
use smallvec::smallvec;
use std::sync::Arc;
use std::time::Duration;

/// Headers that the model's author gives to an answer; most give none.
type AuthorHeaders = Box<HeaderMap>;

/// The headers of an answer of one value. The worker has checked them, so nothing is refused here.
fn author_headers(parts: &[OutputPart]) -> Option<AuthorHeaders> {
    let [part] = parts else { return None };
    let pairs = part.headers().filter_map(|(name, value)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value.as_bytes()).ok()?))
    });
    let headers: HeaderMap = pairs.collect();
    (!headers.is_empty()).then(|| Box::new(headers))
}

/// In which form an answer comes in parts.
#[derive(Clone, Debug)]
enum Stream {
    Events,
    Lines,
    Raw(RawType),
}

/// A request of one item.
pub(crate) struct One<'a> {
    pub(crate) state: &'a ServerState,
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) headers: &'a HeaderMap,
    /// HTTP/1.0 has no chunks: the end of an answer without a length is the end of its connection, whatever the reason.
    pub(crate) has_chunks: bool,
}

/// How its body is read and its answer written.
pub(crate) struct OneHead {
    reading: Reading,
    accept: Accept,
    /// `None`: the client takes the answer whole.
    stream: Option<Stream>,
}

impl One<'_> {
    /// Adds the types that the deployment takes to the failure of a body that has no content type.
    fn explained(&self, failure: Failure) -> Failure {
        input::unsaid(self.headers, input::accepted(&self.deployment.manifest.input), failure)
    }

    /// The form of a stream, if that is more welcome than a whole answer.
    fn stream(&self, accept: &Accept) -> Option<Stream> {
        let output = &self.deployment.manifest.output;
        output.part.as_ref()?;
        if let (true, Some(kind)) = (self.has_chunks, raw::chosen(output, accept)) {
            return Some(Stream::Raw(kind));
        }
        match accept.best(&[JSON, EVENTS, LINES])? {
            EVENTS => Some(Stream::Events),
            LINES => Some(Stream::Lines),
            _ => None,
        }
    }

    fn decode_now(&self, head: &OneHead, body: Chunks) -> Result<Decoded<()>, RefusedBody> {
        let manifest = &self.deployment.manifest;
        let most = self.state.options.max_body_len();
        let length = body.len();
        let taken = match head.reading {
            Reading::Form => form::read(manifest, self.headers, body, most),
            reading => input::take(manifest, reading, body, most),
        };
        // There is no need to guess what an empty body is.
        let taken = taken.map_err(|failure| if length == 0 { failure } else { self.explained(failure) })?;
        let call = taken.call(render::encoding(&head.accept));
        let items = RequestItems::new(&self.deployment, smallvec![Ok(call)], length)?;
        Ok(Decoded { deployment: self.deployment.clone(), items, timeout: None, priority: None, asked: () })
    }
}

impl Dialect for One<'_> {
    type Head = OneHead;
    type Asked = ();
    type Output = (Rendered, Option<AuthorHeaders>);

    const FORM: ProblemForm = problem::document;

    fn deployment(&self) -> Option<&Deployment> {
        Some(&self.deployment)
    }

    fn allowed(&self) -> Duration {
        allowed(&self.deployment.manifest)
    }

    fn read_head(&self, headers: &HeaderMap) -> Result<OneHead, Failure> {
        let manifest = &self.deployment.manifest;
        check_content_encoding(headers)?;
        let reading = input::reading(&manifest.input, body_type(headers)?, content_type(headers))?;
        let accept = Accept::of(headers);
        let stream = self.stream(&accept);
        if stream.is_none() {
            let checked = render::check_accept(&manifest.output.kind, &accept);
            checked.map_err(|refused| match manifest.output.part {
                Some(_) => render::or_in_parts(refused),
                None => refused,
            })?;
        }
        Ok(OneHead { reading, accept, stream })
    }

    async fn decode(&self, head: &OneHead, body: Chunks) -> Result<Decoded<()>, RefusedBody> {
        let weight = input::weight(&self.deployment.manifest, head.reading, body.len());
        offload::run(weight, || self.decode_now(head, body)).await
    }

    fn parts(&self, head: &OneHead, (): &()) -> Option<Box<dyn PartsForm>> {
        Some(match head.stream.clone()? {
            Stream::Events => Box::new(Events),
            Stream::Lines => Box::new(Lines),
            Stream::Raw(kind) => Box::new(Raw::new(kind)),
        })
    }

    /// Most documents are first looked into by the worker.
    fn explain(&self, failure: Failure) -> Failure {
        match self.deployment.manifest.input.kind {
            InputKind::Image => image_came_as_form(self.headers, failure),
            _ => came_as_form(self.headers, self.explained(failure)),
        }
    }

    fn write_weight(&self, head: &OneHead, (): &(), answers: &[Answer]) -> usize {
        let parts = answers.first().and_then(|answer| answer.result.as_ref().ok());
        parts.map_or(0, |parts| render::weight(parts, &head.accept))
    }

    fn write(
        &self,
        head: &OneHead,
        (): (),
        mut answers: Answers,
        timing: &Timing,
    ) -> Result<Written<Self::Output>, Failure> {
        let missing = || Failure::new(Outcome::Internal, "an answer is missing");
        let answer = answers.pop().ok_or_else(missing)?;
        let parts = answer.result.map_err(|failure| self.explain(failure))?;
        let rendered = render::answer(&parts, &head.accept, timing.batch_size <= 1)?;
        Ok(Written::ok((rendered, author_headers(&parts))))
    }

    fn reply(&self, (Rendered { media, body }, author): Self::Output) -> Reply {
        let mut reply = Response::new(ReplyBody::from(body));
        let headers = reply.headers_mut();
        headers.extend(author.into_iter().flat_map(|author| *author));
        headers.insert(CONTENT_TYPE, media);
        reply
    }
}
