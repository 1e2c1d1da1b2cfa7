//! Every way in which a request can end, once: name, HTTP status, gRPC code, metric label, retry or not, whose doing it is.

/// What a client library should do about it; becomes `x-should-retry` where it differs from the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The status says enough.
    AsStatus,
    /// The same request would fail again, although its status looks retryable.
    Never,
}

/// Whose doing an outcome is: rules and dashboards count failures by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The request was answered, or its client left.
    None,
    /// The request was wrong, or its client too slow.
    Client,
    /// More was asked for than can be computed in time.
    Load,
    /// The model failed, or its workers did.
    Model,
    /// The server could not serve.
    Server,
}

impl Blame {
    /// Every one of them.
    pub const ALL: [Blame; 5] = [Blame::None, Blame::Client, Blame::Load, Blame::Model, Blame::Server];

    /// Its name in documents.
    pub const fn label(self) -> &'static str {
        match self {
            Blame::None => "none",
            Blame::Client => "client",
            Blame::Load => "load",
            Blame::Model => "model",
            Blame::Server => "server",
        }
    }
}

/// Where the duration of a request counts; a metric label. Refusals take microseconds, so they are apart from answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was answered.
    Ok,
    /// It was refused, or gave up, because too much was asked for.
    Refused,
    /// It ended without an answer for any other reason.
    Failed,
}

impl Ending {
    /// Every one of them, in the order of their numbers.
    pub const ALL: [Ending; 3] = [Ending::Ok, Ending::Refused, Ending::Failed];

    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Ending::Ok => "ok",
            Ending::Refused => "refused",
            Ending::Failed => "failed",
        }
    }
}

impl Outcome {
    /// Where the duration of a request that ended so counts.
    pub const fn ending(self) -> Ending {
        match (self, self.blame()) {
            (Outcome::Ok, _) => Ending::Ok,
            (_, Blame::Load) => Ending::Refused,
            _ => Ending::Failed,
        }
    }
}

macro_rules! outcomes {
    ($($(#[doc = $doc:literal])+ $name:ident: $reason:literal, $title:literal, $http:literal, $grpc:literal, $retry:ident,
       $blame:ident;)+) => {
        /// How a request ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Outcome { $($(#[doc = $doc])+ $name,)+ }

        impl Outcome {
            /// Every outcome, in the order of the table.
            pub const ALL: &'static [Outcome] = &[$(Outcome::$name,)+];

            /// The stable machine-readable name: `x-jitney-reason`, the `reason` of a problem, the metric label.
            pub const fn reason(self) -> &'static str { match self { $(Outcome::$name => $reason,)+ } }
            /// A short human title, the same for every occurrence.
            pub const fn title(self) -> &'static str { match self { $(Outcome::$name => $title,)+ } }
            /// The HTTP status on native routes.
            pub const fn http_status(self) -> u16 { match self { $(Outcome::$name => $http,)+ } }
            /// The gRPC status code by number.
            pub const fn grpc_code(self) -> u8 { match self { $(Outcome::$name => $grpc,)+ } }
            /// Whether the answer must ask clients not to retry.
            pub const fn retry(self) -> Retry { match self { $(Outcome::$name => Retry::$retry,)+ } }
            /// Whose doing it is.
            pub const fn blame(self) -> Blame { match self { $(Outcome::$name => Blame::$blame,)+ } }
            /// The outcome of this `reason`, as a worker writes it.
            pub fn from_reason(reason: &str) -> Option<Outcome> {
                match reason { $($reason => Some(Outcome::$name),)+ _ => None }
            }
        }
    };
}

outcomes! {
    /// Answered with a result.
    Ok: "ok", "OK", 200, 0, AsStatus, None;
    /// The body cannot be parsed at all.
    MalformedBody: "malformed_body", "The body cannot be parsed", 400, 3, AsStatus, Client;
    /// A header, parameter or path of the request is wrong.
    InvalidRequest: "invalid_request", "The request is invalid", 400, 3, AsStatus, Client;
    /// The body parses but is not what the deployment takes.
    InvalidInput: "invalid_input", "The input is invalid", 422, 3, AsStatus, Client;
    /// The request carries no API key, or none of this server's.
    Unauthorized: "unauthorized", "An API key is needed", 401, 16, AsStatus, Client;
    /// No deployment or route of this name.
    NotFound: "not_found", "Not found", 404, 5, AsStatus, Client;
    /// The route exists, the method does not.
    MethodNotAllowed: "method_not_allowed", "Method not allowed", 405, 12, AsStatus, Client;
    /// The answer cannot be given in any type that `accept` allows.
    NotAcceptable: "not_acceptable", "No acceptable media type", 406, 3, AsStatus, Client;
    /// The client sent its body too slowly.
    BodyTimeout: "body_timeout", "The body did not arrive in time", 408, 4, AsStatus, Client;
    /// The body or the item is above its limit.
    TooLarge: "too_large", "Too large", 413, 8, AsStatus, Client;
    /// The `content-type` or `content-encoding` is not one that the deployment takes.
    UnsupportedMediaType: "unsupported_media_type", "Unsupported media type", 415, 3, AsStatus, Client;
    /// The request came for another host, or from a page of another: a browser was talked into sending it.
    ForeignHost: "foreign_host", "The request is meant for or comes from another host", 421, 7, AsStatus, Client;
    /// As many items wait as may wait.
    QueueFull: "queue_full", "The queue is full", 429, 8, AsStatus, Load;
    /// As many bytes wait as may wait.
    QueueBytesFull: "queue_bytes_full", "The queue holds too many bytes", 429, 8, AsStatus, Load;
    /// The wait would be longer than a request may wait.
    WaitTooLong: "wait_too_long", "The wait would be too long", 429, 8, AsStatus, Load;
    /// The answer would be later than the deployment's latency target.
    WouldBeLate: "would_be_late", "The answer would come too late", 429, 8, AsStatus, Load;
    /// More group keys wait than may wait.
    TooManyLanes: "too_many_lanes", "Too many different group keys wait", 429, 8, AsStatus, Load;
    /// The deadline will pass before the answer can be there.
    DeadlineUnreachable: "deadline_unreachable", "The deadline cannot be met", 504, 4, Never, Load;
    /// The deadline passed before the answer was there.
    DeadlineExceeded: "deadline_exceeded", "The deadline passed", 504, 4, Never, Load;
    /// The caller went away; seen in logs and metrics only.
    Cancelled: "cancelled", "The caller went away", 499, 1, AsStatus, None;
    /// The client read its answer in parts too slowly.
    TooSlow: "too_slow", "The client read its answer too slowly", 408, 4, Never, Client;
    /// The model itself said that it cannot answer now: a server that it needs is away.
    Unavailable: "unavailable", "The model cannot answer now", 503, 14, AsStatus, Model;
    /// The model has not been loaded yet.
    Loading: "loading", "The model is still loading", 503, 14, AsStatus, Server;
    /// The deployment has no replica now, and the deadline passes before one is loaded.
    ScaledToZero: "scaled_to_zero", "No replica is loaded", 503, 14, AsStatus, Server;
    /// Every worker of the deployment keeps dying.
    CrashLooping: "crash_looping", "The workers keep crashing", 503, 14, AsStatus, Model;
    /// The server is shutting down and takes nothing new.
    Draining: "draining", "The server is shutting down", 503, 14, AsStatus, Server;
    /// A program that calls another one's engine has lost it, or does not reach it.
    Disconnected: "disconnected", "The engine cannot be reached", 503, 14, AsStatus, Server;
    /// `predict` raised for this item.
    ModelFailed: "model_failed", "The model failed on this input", 500, 13, Never, Model;
    /// `predict` returned something that cannot be an answer for its batch.
    InvalidOutput: "invalid_output", "The model returned an invalid output", 500, 13, Never, Model;
    /// The worker that computed this item died or hung, and the item may not or must not be tried again.
    WorkerLost: "worker_lost", "The worker was lost", 502, 13, Never, Model;
    /// This input killed a worker a moment ago and is refused for a while.
    Quarantined: "quarantined", "This input recently killed a worker", 502, 13, Never, Model;
    /// The server itself failed.
    Internal: "internal", "Internal error", 500, 13, AsStatus, Server;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn reasons_are_unique_and_parse_back() {
        let reasons: HashSet<_> = Outcome::ALL.iter().map(|o| o.reason()).collect();
        assert_eq!(reasons.len(), Outcome::ALL.len());
        for &outcome in Outcome::ALL {
            assert_eq!(Outcome::from_reason(outcome.reason()), Some(outcome));
        }
    }
}
