//! How a request comes in, whatever it asks for: what its head says of time and rank, and then its body.

use super::body::{self, Patience};
use super::headers;
use super::limits::DRAIN_BYTES;
use super::media::{BodyType, body_type, check_encoding};
use super::problem::Problem;
use super::upload::Upload;
use crate::call::{Chunks, Failure};
use crate::held::Held;
use crate::site::Site;
use http_body::Body as _;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use jitney_core::outcome::Outcome;
use jitney_core::request::Priority;
use std::time::{Duration, Instant};

/// What the head of a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// From now; `None` is the deployment's own.
    pub(crate) timeout: Option<Duration>,
    /// Whether the client named it.
    pub(crate) is_given: bool,
    pub(crate) priority: Priority,
}

impl Wanted {
    /// From jitney's own headers; refuses while there is no room for another answer.
    pub(crate) fn of(site: &Site, headers: &HeaderMap) -> Result<Wanted, Failure> {
        check_room(site)?;
        let timeout = headers::timeout(headers)?;
        Ok(Wanted { timeout, is_given: timeout.is_some(), priority: headers::priority(headers)? })
    }

    /// The same, and what `reading` makes of the type that the body is said to have: as it is understood, and as written.
    pub(crate) fn and<R>(
        site: &Site,
        headers: &HeaderMap,
        reading: impl FnOnce(BodyType, &[u8]) -> Result<R, Failure>,
    ) -> Result<(Wanted, R), Failure> {
        let wanted = Wanted::of(site, headers)?;
        check_encoding(headers)?;
        let got = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        let reading = reading(body_type(headers)?, got)?;
        Ok((wanted, reading))
    }
}

/// A request whose head has been read and whose body has not.
pub(crate) struct Intake<'a> {
    pub(crate) site: &'a Site,
    pub(crate) body: Upload,
    /// How long a request may take that names no time.
    pub(crate) allowed: Duration,
}

impl Intake<'_> {
    /// The body, which counts as being received until it has been looked into. One that took its time has used some of the
    /// request's.
    pub(crate) async fn receive(self, wanted: &mut Wanted) -> Result<(Chunks, Option<Held>), Problem> {
        let patience = Patience::of(self.allowed, wanted.timeout);
        let received = body::receive(self.body, self.site, patience).await?;
        if let Some(start) = received.waited_since {
            let total = wanted.timeout.unwrap_or(self.allowed);
            wanted.timeout = Some(left(total, start).ok_or_else(|| patience.end())?);
        }
        Ok((received.chunks, received.held))
    }

    /// Says what is wrong with the head. A short body is read, so that the connection can be used again; a long one is
    /// not worth it.
    pub(crate) async fn refuse(self, failure: Failure) -> Problem {
        let short = self.body.size_hint().upper().is_some_and(|length| length <= DRAIN_BYTES);
        let read = short && body::receive(self.body, self.site, Patience::of(self.allowed, None)).await.is_ok();
        if read { Problem::from(failure) } else { Problem::from(failure).close() }
    }
}

/// How long requests to this deployment may take.
pub(crate) fn allowed(manifest: &jitney_core::manifest::DeploymentManifest) -> Duration {
    Duration::try_from_secs_f64(manifest.options.request_timeout_s).unwrap_or(Duration::MAX)
}

/// Refuses while answers that nobody takes hold as much as bodies may: what is computed now would only add to it.
pub(crate) fn check_room(site: &Site) -> Result<(), Failure> {
    let most = site.options.max_receiving_bytes;
    if u64::try_from(site.untaken.get()).unwrap_or(0) < most {
        return Ok(());
    }
    let detail =
        format!("answers that clients have not taken yet hold the {most} bytes that they may; come back in a second");
    Err(Failure { retry_after: Some(Duration::from_secs(1)), ..Failure::new(Outcome::QueueBytesFull, detail) })
}

/// What was computed, if there is room to answer it: clients may have stopped taking answers meanwhile.
pub(crate) fn with_room<T>(site: &Site, computed: Result<T, Failure>) -> Result<T, Failure> {
    let computed = computed?;
    check_room(site).map(|()| computed)
}

fn left(total: Duration, start: Instant) -> Option<Duration> {
    total.checked_sub(start.elapsed()).filter(|left| !left.is_zero())
}
