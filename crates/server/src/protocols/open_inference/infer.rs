//! `POST /v2/models/{model}/infer`: one request, of one or many rows, and its answer.

use crate::base::ledger::Account;
use crate::base::offload;
use crate::engine::deployment::Deployment;
use crate::engine::request::{Answers, RequestItems};
use crate::engine::server_state::ServerState;
use crate::engine::{request, room};
use crate::open_inference::infer::Inference;
use crate::open_inference::join::join;
use crate::open_inference::request::Parameters;
use crate::protocols::exchange::{Decoded, Dialect, RefusedBody, Written};
use crate::protocols::open_inference::error;
use crate::protocols::open_inference::read;
use crate::protocols::open_inference::read::{Binary, Infer};
use crate::protocols::open_inference::write;
use crate::protocols::open_inference::write::AnswerHead;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::payload::ReplyBody;
use crate::protocols::reply::problem::ProblemForm;
use crate::protocols::request::compression;
use crate::protocols::request::compression::Coding;
use crate::protocols::request::headers;
use crate::protocols::request::media::{BodyType, body_type, content_type, wrong_type};
use crate::protocols::request::terms::allowed;
use crate::values::answer::{Answer, Failure, Timing};
use crate::values::chunks::Chunks;
use hyper::Response;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, VARY};
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;
use std::time::Duration;

/// How many bytes of a body are JSON; the rest are tensors.
const JSON_BYTES: HeaderName = HeaderName::from_static("inference-header-content-length");
/// Shorter answers are not compressed: it would not make them shorter.
const COMPRESS_FROM: usize = 512;

/// A request of the protocol over REST.
pub(crate) struct RestInfer<'a> {
    pub(crate) state: &'a ServerState,
    /// The account of its connection for what is being received.
    pub(crate) received: &'a Account,
    pub(crate) deployment: Arc<Deployment>,
}

/// How its body is read and its answer compressed.
pub(crate) struct RestHead {
    coding: Option<Coding>,
    /// How many bytes of the body are JSON; `None` if all are.
    json_bytes: Option<usize>,
    of_answer: Option<Coding>,
}

/// What its answer repeats, and which outputs it has in which form.
pub(crate) struct RestAsked {
    id: String,
    kept: Parameters,
    outputs: Vec<Box<str>>,
    binary: Binary,
}

/// An answer as the bytes of a body.
pub(crate) struct RestBody {
    bytes: Vec<u8>,
    json_bytes: Option<usize>,
    coding: Option<Coding>,
}

impl RestInfer<'_> {
    fn decode_now(&self, head: &RestHead, body: Chunks) -> Result<Decoded<RestAsked>, RefusedBody> {
        let deployment = self.deployment.clone();
        let most = self.state.options.max_body_len();
        let length = body.len();
        let most_rows = room::most_items_of(&self.state.options, length);
        let Infer { request, binary } = read::read(&deployment.signature, body, head.json_bytes, most)?;
        let inference = Inference::new(&deployment.manifest, &deployment.signature, request, most_rows)?;
        let Inference { calls, outputs, id, wishes } = inference;
        let calls = calls.into_iter().map(Ok).collect();
        let items = RequestItems::with_asked(&deployment, calls, length, id.len() + wishes.bytes())?;
        let asked = RestAsked { id, kept: wishes.kept, outputs, binary };
        Ok(Decoded { deployment, items, timeout: wishes.timeout, priority: wishes.priority, asked })
    }
}

impl Dialect for RestInfer<'_> {
    type Head = RestHead;
    type Asked = RestAsked;
    type Output = RestBody;

    const FORM: ProblemForm = error::form;

    fn deployment(&self) -> Option<&Deployment> {
        Some(&self.deployment)
    }

    fn allowed(&self) -> Duration {
        allowed(&self.deployment.manifest)
    }

    fn read_head(&self, headers: &HeaderMap) -> Result<RestHead, Failure> {
        if body_type(headers)? == BodyType::Form {
            return Err(wrong_type(content_type(headers), &["application/json", "application/octet-stream"]));
        }
        let json_bytes = headers::single(headers, &JSON_BYTES)?.map(|value| {
            let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            digits.and_then(|text| text.parse().ok()).ok_or_else(|| {
                let got = headers::quoted(value.as_bytes());
                let detail = format!("header {JSON_BYTES} must be the length of the JSON in bytes, got {got}");
                Failure::new(Outcome::InvalidRequest, detail)
            })
        });
        let (coding, of_answer) = (compression::of_body(headers)?, compression::of_answer(headers));
        Ok(RestHead { coding, json_bytes: json_bytes.transpose()?, of_answer })
    }

    async fn decode(&self, head: &RestHead, mut body: Chunks) -> Result<Decoded<RestAsked>, RefusedBody> {
        // Counts an inflated body, and is kept until this returns.
        let mut _received = None;
        if let Some(coding) = head.coding {
            let most = self.state.options.max_body_bytes;
            let inflated = compression::inflate(coding, body, most, self.state, self.received).await?;
            (body, _received) = (inflated.body.into(), Some(inflated.received));
        }
        let json_bytes = head.json_bytes.unwrap_or(body.len());
        let weight = json_bytes + self.deployment.signature.weight(body.len().saturating_sub(json_bytes));
        offload::run(weight, || self.decode_now(head, body)).await
    }

    fn write_weight(&self, head: &RestHead, asked: &RestAsked, answers: &[Answer]) -> usize {
        let unnamed = self.deployment.signature.outputs.first().map_or("output", |slot| &slot.name);
        let written = write::weight(answers, unnamed, &asked.binary, head.of_answer.is_some());
        request::join_weight(answers) + written
    }

    fn write(
        &self,
        head: &RestHead,
        asked: RestAsked,
        answers: Answers,
        _timing: &Timing,
    ) -> Result<Written<RestBody>, Failure> {
        let tensors = join(&self.deployment.signature, &asked.outputs, answers)?;
        let of_answer = AnswerHead {
            model: &self.deployment.manifest.name,
            version: &self.deployment.version,
            id: &asked.id,
            kept: &asked.kept,
        };
        let (mut bytes, json_bytes) = write::write(&of_answer, tensors, &asked.binary)?;
        let coding = head.of_answer.filter(|_| bytes.len() >= COMPRESS_FROM);
        if let Some(coding) = coding {
            bytes = compression::compress(coding, &bytes);
        }
        Ok(Written::ok(RestBody { bytes, json_bytes, coding }))
    }

    fn reply(&self, RestBody { bytes, json_bytes, coding }: RestBody) -> Reply {
        let mut reply = Response::new(ReplyBody::from(bytes));
        let headers = reply.headers_mut();
        let media = if json_bytes.is_some() { "application/octet-stream" } else { "application/json" };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        if let Some(json_bytes) = json_bytes {
            headers.insert(JSON_BYTES, HeaderValue::from(json_bytes));
        }
        if let Some(coding) = coding {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
            headers.insert(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
        }
        reply
    }
}
