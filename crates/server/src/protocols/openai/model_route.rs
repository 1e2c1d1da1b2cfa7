//! What the routes of this API have in common that compute items: a body of JSON that names its model, and an answer of JSON.

use crate::base::offload;
use crate::engine::deployment::Deployment;
use crate::engine::request;
use crate::engine::request::{Answers, RequestItems};
use crate::engine::server_state::ServerState;
use crate::protocols::exchange::{Decoded, Dialect, RefusedBody, Written};
use crate::protocols::native::pages::reply;
use crate::protocols::openai::error;
use crate::protocols::openai::input::check_is_json;
use crate::protocols::openai::names::most_patient;
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::problem::ProblemForm;
use crate::values::answer::{Answer, Failure, Timing};
use crate::values::chunks::Chunks;
use hyper::header::HeaderMap;
use jitney_core::config::manifest::TaskKind;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a body may take to arrive where no model can be called.
const NO_MODEL: Duration = Duration::from_secs(60);

/// A route that computes items. Each is a `Dialect`.
pub(crate) trait ModelRoute: Send + Sync {
    /// What a request asks for in addition to its items.
    type Asked: Send;

    /// The server.
    fn state(&self) -> &ServerState;

    /// What a deployment says that this route can call.
    fn task(&self) -> TaskKind;

    /// Finds the model that a body names, and reads its items.
    fn decode_now(&self, body: Chunks) -> Result<Decoded<Self::Asked>, RefusedBody>;

    /// The form in which the client takes the answer part by part; `None` if it wants the answer whole.
    fn parts_form(&self, _asked: &Self::Asked) -> Option<Box<dyn PartsForm>> {
        None
    }

    /// Writes the whole answer.
    fn write_body(&self, asked: Self::Asked, answers: Answers) -> Result<Vec<u8>, Failure>;
}

impl<R: ModelRoute> Dialect for R {
    type Head = ();
    type Asked = R::Asked;
    type Output = Vec<u8>;

    const FORM: ProblemForm = error::form;

    fn deployment(&self) -> Option<&Deployment> {
        None
    }

    /// Which deployment is meant is only known from the body: until then the most patient one counts.
    fn allowed(&self) -> Duration {
        most_patient(self.state(), self.task()).unwrap_or(NO_MODEL)
    }

    fn read_head(&self, headers: &HeaderMap) -> Result<(), Failure> {
        check_is_json(headers)
    }

    async fn decode(&self, (): &(), body: Chunks) -> Result<Decoded<R::Asked>, RefusedBody> {
        offload::run(body.len(), || self.decode_now(body)).await
    }

    fn parts(&self, (): &(), asked: &R::Asked) -> Option<Box<dyn PartsForm>> {
        self.parts_form(asked)
    }

    fn write_weight(&self, (): &(), _asked: &R::Asked, answers: &[Answer]) -> usize {
        request::weight(answers, |part| part.data.len())
    }

    fn write(&self, (): &(), asked: R::Asked, answers: Answers, _timing: &Timing) -> Result<Written<Vec<u8>>, Failure> {
        self.write_body(asked, answers).map(Written::ok)
    }

    fn reply(&self, body: Vec<u8>) -> Reply {
        reply("application/json", body)
    }
}

/// What a body asks of `deployment`. A body that was refused is counted there.
pub(super) fn decoded<A>(
    deployment: Arc<Deployment>,
    read: Result<(RequestItems, A), Failure>,
) -> Result<Decoded<A>, RefusedBody> {
    match read {
        Ok((items, asked)) => Ok(Decoded { deployment, items, timeout: None, priority: None, asked }),
        Err(failure) => Err(RefusedBody { failure, deployment: Some(deployment) }),
    }
}

/// A time as this API writes it: whole seconds since 1970.
pub(super) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
