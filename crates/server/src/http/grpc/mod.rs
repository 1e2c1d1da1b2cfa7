//! gRPC: whatever comes with a content-type of `application/grpc`. The methods of the Open Inference Protocol, gRPC's own
//! protocol for health, and reflection.

mod frame;
mod health;
mod infer;
mod reflection;
mod reply;
mod stream;
mod waiting;

use super::body;
use super::door::Door;
use super::headers::{self, RequestId};
use super::intake::{self, Intake, Wanted};
use super::limits::QUESTION_BYTES;
use super::problem::{Problem, Said};
use super::service::Reply;
use super::socket::Active;
use crate::call::{Failure, Timing};
use crate::http::upload::Upload;
use crate::messages::inference as message;
use crate::site::Site;
use crate::tensors::describe;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Version};
use jitney_core::outcome::Outcome;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// How long a request may take to arrive that no model is there for.
const NOBODY: Duration = Duration::from_secs(10);
const SERVICE: &str = "inference.GRPCInferenceService";

/// Answers one call.
pub(crate) async fn answer(
    site: &Arc<Site>,
    request: Request<Upload>,
    id: &RequestId,
    active: &Active,
) -> Result<Reply, Problem> {
    let (wanted, coding) = match check_head(site, &request) {
        Ok(checked) => checked,
        Err(failure) => return Err(Problem::from(failure).instead_of(request.body())),
    };
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let (service, method) = path.strip_prefix('/').and_then(|path| path.rsplit_once('/')).unwrap_or_default();
    let call = Call { site, body, id, active, wanted, coding };
    match (service, method) {
        (SERVICE, "ModelInfer") => call.infer().await,
        (SERVICE, "ModelStreamInfer") => Ok(stream::answer(site.clone(), call.body, &head.headers, wanted, coding, id)),
        (SERVICE, method) => call.describe(method).await,
        (health::SERVICE, "Check") => call.unary(|site, asked| health::check(site, &asked)).await,
        (health::SERVICE, "Watch") => {
            let asked = call.receive().await?;
            Ok(health::watch(site.clone(), asked, id))
        }
        (reflection::V1 | reflection::V1_ALPHA, "ServerReflectionInfo") => {
            Ok(reflection::answer(site.clone(), call.body, coding, id))
        }
        _ => Err(unknown(path).instead_of(&call.body)),
    }
}

fn unknown(path: &str) -> Problem {
    let shown = headers::quoted(path.as_bytes());
    let what = format!("{shown} is no method here; {SERVICE}, {} and reflection are served", health::SERVICE);
    Problem::new(Outcome::MethodNotAllowed, what)
}

/// How long a message may take to arrive: only when it is here does it name its model.
fn allowed(site: &Site) -> Duration {
    let models = site.deployments().into_iter().flatten();
    models.map(|(_, deployment)| intake::allowed(&deployment.manifest)).max().unwrap_or(NOBODY)
}

/// One call whose message has not been read.
struct Call<'a> {
    site: &'a Site,
    body: Upload,
    id: &'a RequestId,
    active: &'a Active,
    wanted: Wanted,
    coding: Option<super::coding::Coding>,
}

impl Call<'_> {
    /// The message of a method that asks for what the front knows.
    async fn receive<M: Message + Default>(self) -> Result<M, Problem> {
        let Call { site, body, wanted, coding, .. } = self;
        let body = body::question(body, site, wanted.timeout).await?;
        let mut message = frame::only(body, coding, QUESTION_BYTES, site).await?;
        Ok(frame::decode(message.contiguous().clone())?)
    }

    /// A method that answers out of what the front knows.
    async fn unary<M, A>(self, answer: impl FnOnce(&Site, M) -> Result<A, Failure>) -> Result<Reply, Problem>
    where
        M: Message + Default,
        A: Message,
    {
        let (site, id) = (self.site, self.id);
        let asked = self.receive().await?;
        let pieces = frame::message(&answer(site, asked)?)?;
        Ok(reply::unary(pieces, id, &Timing::default()))
    }

    async fn describe(self, method: &str) -> Result<Reply, Problem> {
        use message as m;
        match method {
            "ServerLive" => self.unary(|_, _: m::ServerLiveRequest| Ok(m::ServerLiveResponse { live: true })).await,
            "ServerReady" => {
                let answer = |site: &Site, _: m::ServerReadyRequest| {
                    Ok(m::ServerReadyResponse { ready: site.readiness().ready })
                };
                self.unary(answer).await
            }
            "ModelReady" => {
                let answer = |site: &Site, asked: m::ModelReadyRequest| {
                    // What is not there is not ready: clients ask this to find out.
                    let deployment = describe::find(site, &asked.name, &asked.version);
                    let ready = deployment.is_ok_and(|deployment| describe::is_ready(site, deployment));
                    Ok(m::ModelReadyResponse { ready })
                };
                self.unary(answer).await
            }
            "ServerMetadata" => self.unary(|_, _: m::ServerMetadataRequest| Ok(describe::server())).await,
            "ModelMetadata" => {
                let answer = |site: &Site, asked: m::ModelMetadataRequest| {
                    Ok(describe::model(describe::find(site, &asked.name, &asked.version)?))
                };
                self.unary(answer).await
            }
            "ModelConfig" => {
                let answer = |site: &Site, asked: m::ModelConfigRequest| {
                    let config = describe::config(describe::find(site, &asked.name, &asked.version)?);
                    Ok(m::ModelConfigResponse { config: Some(config) })
                };
                self.unary(answer).await
            }
            "ModelStatistics" => {
                let answer = |site: &Site, asked: m::ModelStatisticsRequest| {
                    describe::all_statistics(site, &asked.name, &asked.version)
                };
                self.unary(answer).await
            }
            "RepositoryIndex" => {
                let answer = |site: &Site, asked: m::RepositoryIndexRequest| Ok(describe::index(site, asked.ready));
                self.unary(answer).await
            }
            "RepositoryModelLoad" | "RepositoryModelUnload" => {
                Err(Problem::from(describe::no_control()).instead_of(&self.body))
            }
            method if method.contains("SharedMemory") => {
                let what = describe::no_shared_memory().detail;
                Err(Problem::new(Outcome::MethodNotAllowed, what).instead_of(&self.body))
            }
            "TraceSetting" | "LogSettings" => {
                let what = "this server has no settings of traces and logs to ask for or to change; its log has the level that it was started with";
                Err(Problem::new(Outcome::MethodNotAllowed, what).instead_of(&self.body))
            }
            method => Err(unknown(&format!("/{SERVICE}/{method}")).instead_of(&self.body)),
        }
    }

    async fn infer(self) -> Result<Reply, Problem> {
        let Call { site, body, id, active, mut wanted, coding } = self;
        let (body, receiving) = Intake { site, body, allowed: allowed(site) }.receive(&mut wanted).await?;
        let message = frame::only(body, coding, site.options.max_body_bytes, site).await?;
        active.compute();
        match infer::infer(site, message, receiving, wanted).await {
            Ok(answer) => {
                let timing = answer.timing;
                Ok(reply::unary(answer.alone()?, id, &timing))
            }
            Err((failure, timing)) => Ok(Problem::from(failure).reply(Door::Grpc, id, &timing)),
        }
    }
}

fn check_head(site: &Site, request: &Request<Upload>) -> Result<(Wanted, Option<super::coding::Coding>), Failure> {
    let headers = request.headers();
    if request.version() != Version::HTTP_2 {
        return Err(Failure::new(Outcome::InvalidRequest, "gRPC needs HTTP/2; this connection speaks HTTP/1"));
    }
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    if !matches!(kind, b"application/grpc" | b"application/grpc+proto") {
        let detail = format!("content-type {} is not taken; send application/grpc", headers::quoted(kind));
        return Err(Failure::new(Outcome::UnsupportedMediaType, detail));
    }
    let mut wanted = if is_probe(request.uri().path()) {
        Wanted { timeout: None, is_given: false, priority: headers::priority(headers)? }
    } else {
        Wanted::of(site, headers)?
    };
    wanted.timeout = [wanted.timeout, timeout(headers)?].into_iter().flatten().min();
    wanted.is_given = wanted.timeout.is_some();
    Ok((wanted, frame::coding(headers)?))
}

/// gRPC's own header: at most eight digits, and a unit.
fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Failure> {
    let Some(value) = headers::single(headers, &TIMEOUT)? else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(|text| {
        let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let is_number = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = digits.parse().ok().filter(|_| is_number)?;
        Some(match unit {
            "H" => Duration::from_secs(number * 3600),
            "M" => Duration::from_secs(number * 60),
            "S" => Duration::from_secs(number),
            "m" => Duration::from_millis(number),
            "u" => Duration::from_micros(number),
            "n" => Duration::from_nanos(number),
            _ => return None,
        })
    });
    parsed.map(Some).ok_or_else(|| {
        let got = headers::quoted(value.as_bytes());
        let detail = format!("header grpc-timeout must be up to 8 digits and one of H, M, S, m, u, n, got {got}");
        Failure::new(Outcome::InvalidRequest, detail)
    })
}

/// Methods that answer without a key.
pub(crate) fn is_probe(path: &str) -> bool {
    matches!(path, "/inference.GRPCInferenceService/ServerLive" | "/inference.GRPCInferenceService/ServerReady")
        || path.starts_with("/grpc.health.v1.Health/")
}

/// A problem as an answer that is nothing but its trailers, which then stand in the head.
pub(crate) fn say(problem: &Problem) -> Said {
    Said { status: 200, media: "application/grpc", body: vec![], headers: reply::status(problem.failure()) }
}

/// Text as gRPC writes it in a header: what is not printable ASCII, and the percent sign, as `%XX`.
pub(crate) fn message(text: &str) -> HeaderValue {
    use std::fmt::Write as _;
    let mut written = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            written.push(char::from(byte));
        } else {
            // A String takes everything.
            let _ = write!(written, "%{byte:02X}");
        }
    }
    HeaderValue::try_from(written).unwrap_or_else(|_| HeaderValue::from_static("the message cannot be written"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_have_units() {
        let of = |text| {
            let headers = HeaderMap::from_iter([(TIMEOUT, HeaderValue::from_static(text))]);
            timeout(&headers).map(Option::unwrap_or_default).map_err(|failure| failure.detail)
        };
        assert_eq!(of("2S"), Ok(Duration::from_secs(2)));
        assert_eq!(of("99999999m"), Ok(Duration::from_millis(99_999_999)));
        assert_eq!((of("1H"), of("5u")), (Ok(Duration::from_secs(3600)), Ok(Duration::from_micros(5))));
        for wrong in ["", "S", "1", "1s", "-1S", "123456789S", "1.5S"] {
            assert!(of(wrong).unwrap_err().contains(&format!("`{wrong}`")), "{wrong}");
        }
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(message("100 % „ä“\n"), "100 %25 %E2%80%9E%C3%A4%E2%80%9C%0A");
    }
}
