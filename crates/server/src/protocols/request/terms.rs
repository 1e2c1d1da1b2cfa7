//! What a request asks for of time and rank, and its body, which may use some of that time.

use crate::base::ledger::CountedBytes;
use crate::engine::deployment::Deployment;
use crate::engine::request::RequestItems;
use crate::engine::server_state::ServerState;
use crate::protocols::connection::limits::DRAIN_BYTES;
use crate::protocols::connection::upload::Upload;
use crate::protocols::reply::problem::Problem;
use crate::protocols::request::body;
use crate::protocols::request::body::Patience;
use crate::protocols::request::headers;
use crate::values::answer::Failure;
use crate::values::chunks::Chunks;
use http_body::Body as _;
use hyper::header::HeaderMap;
use jitney_core::config::manifest::DeploymentManifest;
use jitney_core::request::Priority;
use std::time::{Duration, Instant};

/// What the head of a request says of its time and rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTerms {
    /// From now; `None` is the deployment's own.
    pub(crate) timeout: Option<Duration>,
    /// Whether the client named it.
    pub(crate) is_given: bool,
    pub(crate) priority: Priority,
}

impl RequestTerms {
    /// From jitney's own headers and the time-out of the protocol: the shorter one counts.
    pub(crate) fn new(headers: &HeaderMap, of_protocol: Option<Duration>) -> Result<RequestTerms, Failure> {
        let timeout = [headers::timeout(headers)?, of_protocol].into_iter().flatten().min();
        Ok(RequestTerms { timeout, is_given: timeout.is_some(), priority: headers::priority(headers)? })
    }

    /// Gives these terms to the items of a request, whose body may say more of them. A body that took its time has used
    /// some of what is left; without a time-out of the client's own that is at most what the deployment allows.
    pub(crate) fn apply(
        self,
        items: &mut RequestItems,
        deployment: &Deployment,
        timeout: Option<Duration>,
        priority: Option<Priority>,
    ) {
        let allowed = allowed(&deployment.manifest);
        let of_head = self.timeout.map(|timeout| if self.is_given { timeout } else { timeout.min(allowed) });
        let timeout = [of_head, timeout].into_iter().flatten().min();
        let priority = priority.unwrap_or(self.priority);
        for call in items.calls_mut() {
            (call.timeout, call.priority) = (timeout, priority);
        }
    }
}

/// How long requests to this deployment may take.
pub(crate) fn allowed(manifest: &DeploymentManifest) -> Duration {
    manifest.options.request_timeout()
}

/// The body of a request whose head has been read.
pub(crate) struct IncomingBody<'a> {
    pub(crate) state: &'a ServerState,
    pub(crate) upload: &'a mut Upload,
    /// How long a request may take that names no time.
    pub(crate) allowed: Duration,
}

impl IncomingBody<'_> {
    /// The body, which counts as being received until it has been decoded. One that took its time has used some of the
    /// request's.
    pub(crate) async fn receive(self, terms: &mut RequestTerms) -> Result<(Chunks, Option<CountedBytes>), Problem> {
        let patience = Patience::of(self.allowed, terms.timeout);
        let received = body::receive(self.upload, self.state, patience).await?;
        if let Some(start) = received.waited_since {
            let total = terms.timeout.unwrap_or(self.allowed);
            terms.timeout = Some(left(total, start).ok_or_else(|| patience.end())?);
        }
        Ok((received.chunks, received.held))
    }

    /// Says what is wrong with the head. A short body is read, so that the connection can be used again; a long one is
    /// not worth it.
    pub(crate) async fn refuse(self, failure: Failure) -> Problem {
        let short = self.upload.size_hint().upper().is_some_and(|length| length <= DRAIN_BYTES);
        let patience = Patience::of(self.allowed, None);
        let read = short && body::receive(self.upload, self.state, patience).await.is_ok();
        if read { Problem::from(failure) } else { Problem::from(failure).close() }
    }
}

fn left(total: Duration, start: Instant) -> Option<Duration> {
    total.checked_sub(start.elapsed()).filter(|left| !left.is_zero())
}
