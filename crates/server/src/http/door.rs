//! Which protocol a request speaks. Its path decides, before anything else is looked at, so that whatever goes wrong
//! is said in the form that its client understands.

use super::problem::{Problem, Said};
use super::{grpc, oip, openai, problem};
use hyper::Request;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use jitney_core::options::ServerOptions;

/// A protocol of the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// jitney's own routes: deployments and pages.
    Native,
    /// Everything below `/v1`.
    OpenAi,
    /// Everything below `/v2`: the Open Inference Protocol over REST.
    OpenInference,
    /// Whatever says that it is gRPC.
    Grpc,
}

impl Door {
    /// The door that a request is at; `has_deployment` says whether there is one of a name.
    pub(crate) fn of<B>(request: &Request<B>, has_deployment: impl Fn(&str) -> bool) -> Door {
        let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
            return Door::Grpc;
        }
        let path = request.uri().path();
        match path.split('/').nth(1) {
            Some("v1") => Door::OpenAi,
            Some("v2") => Door::OpenInference,
            // What OpenAI's clients ask for whose base URL lacks it: they could not read any other answer.
            Some(first) if openai::lacks_version(path) && !has_deployment(first) => Door::OpenAi,
            _ => Door::Native,
        }
    }

    /// Whether a route answers also those who have no key: load balancers and supervisors do not have one.
    pub(crate) fn is_open(self, path: &str, options: &ServerOptions) -> bool {
        match self {
            // The docs are the same page everywhere, and ask for a key themselves: a browser cannot send one for a page.
            Door::Native => {
                matches!(path, "/livez" | "/readyz" | "/docs") || (options.open_metrics && path == "/metrics")
            }
            Door::OpenAi => false,
            Door::OpenInference => oip::is_probe(path),
            Door::Grpc => grpc::is_probe(path),
        }
    }

    /// How this protocol says that something went wrong. What all protocols say alike (`retry-after`,
    /// `x-jitney-reason`, …) is not its business.
    pub(crate) fn say(self, problem: &Problem, request_id: &str) -> Said {
        match self {
            Door::Native => problem::document(problem, request_id),
            Door::OpenAi => openai::say(problem),
            Door::OpenInference => oip::say(problem),
            Door::Grpc => grpc::say(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_type_tell_the_door() {
        for (path, kind, door) in [
            ("/", "", Door::Native),
            ("/v1", "", Door::OpenAi),
            ("/v1/models/a/b", "", Door::OpenAi),
            ("/v11", "", Door::Native),
            ("/x/v1", "", Door::Native),
            ("/v2/health/live", "application/json", Door::OpenInference),
            ("/inference.GRPCInferenceService/ModelInfer", "application/grpc+proto", Door::Grpc),
            ("/v2", "application/grpc", Door::Grpc),
            ("/embeddings", "application/json", Door::OpenAi),
            ("/models/a", "", Door::OpenAi),
            ("/models", "", Door::Native),
            ("/chat", "", Door::Native),
            ("/embeddings/batch", "", Door::Native),
            ("/openai/deployments/a/embeddings", "application/json", Door::OpenAi),
            ("/openai", "", Door::Native),
        ] {
            let request = Request::builder().uri(path).header(CONTENT_TYPE, kind).body(()).unwrap();
            let has_deployment = |name: &str| name == "models" && path == "/models";
            assert_eq!(Door::of(&request, has_deployment), door, "{path} {kind}");
        }
    }
}
