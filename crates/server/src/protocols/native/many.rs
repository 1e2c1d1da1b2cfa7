//! `POST /{deployment}/batch`: many items in, as many outcomes out, in their order.

use crate::base::offload;
use crate::engine::deployment::Deployment;
use crate::engine::request::{Answers, RequestItems};
use crate::engine::server_state::ServerState;
use crate::engine::{request, room};
use crate::protocols::exchange::{Decoded, Dialect, RefusedBody, Written};
use crate::protocols::reply::accept::Accept;
use crate::protocols::reply::outcomes;
use crate::protocols::reply::outcomes::Outcomes;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::payload::ReplyBody;
use crate::protocols::reply::problem;
use crate::protocols::reply::problem::Problem;
use crate::protocols::reply::problem::ProblemForm;
use crate::protocols::reply::render;
use crate::protocols::reply::request_id::RequestId;
use crate::protocols::request::input;
use crate::protocols::request::input::ManyReading;
use crate::protocols::request::media::{body_type, check_content_encoding, content_type};
use crate::protocols::request::terms::allowed;
use crate::values::answer::{Answer, Failure, Timing};
use crate::values::chunks::Chunks;
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;
use std::time::Duration;

/// How many items of a request failed.
const FAILED: HeaderName = HeaderName::from_static("x-jitney-failed");
/// A body is cut into items at a cost of their number, and an item may be as short as two bytes.
const ITEMS_WEIGH: usize = 16;

/// A request of many items.
pub(crate) struct Many<'a> {
    pub(crate) state: &'a ServerState,
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) id: &'a RequestId,
}

/// How its body is read and its outcomes written.
pub(crate) struct ManyHead {
    reading: ManyReading,
    accept: Accept,
}

impl Many<'_> {
    fn decode_now(&self, head: &ManyHead, body: Chunks) -> Result<Decoded<()>, RefusedBody> {
        let (manifest, options) = (&self.deployment.manifest, &self.state.options);
        let most = options.max_body_len();
        let length = body.len();
        let taken = input::take_many(manifest, head.reading, body, most, room::most_items_of(options, length));
        let known = input::accepted_many(&manifest.input).iter().copied();
        let taken = taken.map_err(|failure| input::unsaid(self.headers, known, failure))?;
        let encoding = render::encoding(&head.accept);
        let calls = taken.into_iter().map(|taken| taken.map(|taken| taken.call(encoding))).collect();
        let items = RequestItems::new(&self.deployment, calls, length)?;
        Ok(Decoded { deployment: self.deployment.clone(), items, timeout: None, priority: None, asked: () })
    }
}

impl Dialect for Many<'_> {
    type Head = ManyHead;
    type Asked = ();
    type Output = Outcomes;

    const FORM: ProblemForm = problem::document;

    fn deployment(&self) -> Option<&Deployment> {
        Some(&self.deployment)
    }

    fn allowed(&self) -> Duration {
        allowed(&self.deployment.manifest)
    }

    fn read_head(&self, headers: &HeaderMap) -> Result<ManyHead, Failure> {
        let manifest = &self.deployment.manifest;
        check_content_encoding(headers)?;
        let reading = input::reading_many(&manifest.input, body_type(headers)?, content_type(headers))?;
        let accept = Accept::of(headers);
        render::choose(&accept, outcomes::offers(&manifest.output.kind))?;
        Ok(ManyHead { reading, accept })
    }

    async fn decode(&self, head: &ManyHead, body: Chunks) -> Result<Decoded<()>, RefusedBody> {
        offload::run(body.len().saturating_mul(ITEMS_WEIGH), || self.decode_now(head, body)).await
    }

    fn write_weight(&self, _head: &ManyHead, (): &(), answers: &[Answer]) -> usize {
        request::weight(answers, |part| part.data.len())
    }

    fn write(&self, head: &ManyHead, (): (), answers: Answers, _timing: &Timing) -> Result<Written<Outcomes>, Failure> {
        let results = answers.into_iter().map(|answer| answer.result).collect();
        let outcomes = outcomes::write(results, &head.accept, &self.deployment.manifest.name, &self.id.text())?;
        let outcome = outcomes.all_failed.as_ref().map_or(Outcome::Ok, |first| first.outcome);
        Ok(Written { output: outcomes, outcome })
    }

    fn reply(&self, outcomes: Outcomes) -> Reply {
        let Outcomes { media, body, failed, all_failed } = outcomes;
        let mut reply = match all_failed {
            None => Response::new(ReplyBody::from(body)),
            Some(first) => {
                let mut reply =
                    Problem::from(first).reply(Some(&self.deployment.manifest.name), problem::document, self.id);
                *reply.body_mut() = ReplyBody::from(body);
                reply
            }
        };
        reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
        reply.headers_mut().insert(FAILED, HeaderValue::from(failed));
        reply
    }
}
