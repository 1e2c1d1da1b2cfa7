//! Which protocol a request speaks. Its path decides, before anything else is looked at, so that whatever goes wrong
//! is said in the form that its client understands.

use crate::protocols::reply::problem;
use crate::protocols::reply::problem::ProblemForm;
use crate::protocols::{grpc, open_inference, openai};
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use jitney_core::config::options::ServerOptions;

/// Routes of jitney's own protocol that no deployment has.
const PAGES: [&str; 9] =
    ["/", "/livez", "/readyz", "/metrics", "/config", "/docs", "/live", "/live/events", "/openapi.json"];

/// A protocol of the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// jitney's own routes: deployments and pages.
    Native,
    /// Everything below `/v1`.
    OpenAi,
    /// Everything below `/v2`: the Open Inference Protocol over REST.
    OpenInference,
    /// Whatever says that it is gRPC.
    Grpc,
}

impl Protocol {
    /// The protocol of a request; `has_deployment` says whether there is one of a name, `is_own_path` whether one has
    /// this path as its own.
    pub(crate) fn of(
        head: &Parts,
        has_deployment: impl Fn(&str) -> bool,
        is_own_path: impl Fn(&str) -> bool,
    ) -> Protocol {
        let kind = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
            return Protocol::Grpc;
        }
        let path = head.uri.path();
        match path.split('/').nth(1) {
            Some("v1") if !is_own_path(path) => Protocol::OpenAi,
            Some("v2") => Protocol::OpenInference,
            // What OpenAI's clients ask for whose base URL lacks it: they could not read any other answer.
            Some(first) if openai::routes::lacks_version(path) && !has_deployment(first) && !is_own_path(path) => {
                Protocol::OpenAi
            }
            _ => Protocol::Native,
        }
    }

    /// Whether a route also answers clients that have no key, such as load balancers and supervisors.
    pub(crate) fn is_open(self, path: &str, options: &ServerOptions) -> bool {
        match self {
            // These pages are the same everywhere, and ask for a key themselves: a browser cannot send one for a page.
            Protocol::Native => {
                matches!(path, "/livez" | "/readyz" | "/docs" | "/live") || (options.open_metrics && path == "/metrics")
            }
            Protocol::OpenAi => false,
            Protocol::OpenInference => open_inference::routes::is_probe(path),
            Protocol::Grpc => grpc::routes::is_probe(path),
        }
    }

    /// Whether a request asks for items to be computed: those are counted by their outcome.
    pub(crate) fn is_call(self, method: &Method, path: &str) -> bool {
        method == Method::POST
            && match self {
                Protocol::Native => !PAGES.contains(&path),
                Protocol::OpenAi => openai::routes::is_call(path),
                Protocol::OpenInference => open_inference::routes::is_call(path),
                Protocol::Grpc => grpc::routes::is_call(path),
            }
    }

    /// What logs call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::Native => "native",
            Protocol::OpenAi => "openai",
            Protocol::OpenInference => "open_inference",
            Protocol::Grpc => "grpc",
        }
    }

    /// Every protocol.
    #[cfg(test)]
    const ALL: [Protocol; 4] = [Protocol::Native, Protocol::OpenAi, Protocol::OpenInference, Protocol::Grpc];

    /// How this protocol writes problems.
    pub(crate) fn form(self) -> ProblemForm {
        match self {
            Protocol::Native => problem::document,
            Protocol::OpenAi => openai::error::form,
            Protocol::OpenInference => open_inference::error::form,
            Protocol::Grpc => grpc::reply::form,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    #[test]
    fn metrics_know_every_protocol() {
        assert_eq!(Protocol::ALL.map(Protocol::name), crate::engine::server_state::PROTOCOLS);
    }

    #[test]
    fn path_and_type_select_the_protocol() {
        for (path, kind, protocol) in [
            ("/", "", Protocol::Native),
            ("/v1", "", Protocol::OpenAi),
            ("/v1/models/a/b", "", Protocol::OpenAi),
            ("/v1/predict", "", Protocol::Native),
            ("/v11", "", Protocol::Native),
            ("/x/v1", "", Protocol::Native),
            ("/v2/health/live", "application/json", Protocol::OpenInference),
            ("/inference.GRPCInferenceService/ModelInfer", "application/grpc+proto", Protocol::Grpc),
            ("/v2", "application/grpc", Protocol::Grpc),
            ("/embeddings", "application/json", Protocol::OpenAi),
            ("/models/a", "", Protocol::OpenAi),
            ("/models", "", Protocol::Native),
            ("/chat", "", Protocol::Native),
            ("/embeddings/batch", "", Protocol::Native),
            ("/openai/deployments/a/embeddings", "application/json", Protocol::OpenAi),
            ("/openai", "", Protocol::Native),
        ] {
            let request = Request::builder().uri(path).header(CONTENT_TYPE, kind).body(()).unwrap();
            let has_deployment = |name: &str| name == "models" && path == "/models";
            let is_own_path = |path: &str| path == "/v1/predict";
            assert_eq!(Protocol::of(&request.into_parts().0, has_deployment, is_own_path), protocol, "{path} {kind}");
        }
    }
}
