//! What the standard variables of OpenTelemetry say about traces. A value that cannot be used is a warning and no reason not to
//! start: a model server without traces still serves.

use crate::base::traces::context::TraceContext;
use hyper::header::{HeaderName, HeaderValue};
use std::time::Duration;

const TRACES_PATH: &str = "/v1/traces";

/// Which requests are traced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampler {
    /// The share of the traces that begin here and are sampled.
    pub(crate) share: f64,
    /// Whether a request with a parent is sampled if its parent is.
    pub(crate) is_parent_based: bool,
}

impl Sampler {
    /// Whether the spans of this request are kept.
    pub(crate) fn samples(self, trace: u128, parent: Option<TraceContext>) -> bool {
        match parent.filter(|_| self.is_parent_based) {
            Some(parent) => parent.is_sampled,
            // As other libraries do: the last 63 bits of the id are a number between 0 and 1.
            None => ((trace as u64) >> 1) as f64 <= self.share * 2f64.powi(63) && self.share > 0.0,
        }
    }
}

/// Where traces are sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) timeout: Duration,
    pub(crate) gzips: bool,
}

impl Endpoint {
    /// As people read it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}{}", self.authority(), self.path)
    }

    /// Host and port.
    pub(crate) fn authority(&self) -> String {
        let brackets = self.host.contains(':');
        if brackets { format!("[{}]:{}", self.host, self.port) } else { format!("{}:{}", self.host, self.port) }
    }
}

/// What the variables and the options say together.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    pub(crate) sampler: Sampler,
    /// A longer request is slow, and kept whatever the sampler and the caller say.
    pub(crate) slow: Option<Duration>,
    /// `None`: traces are kept here only.
    pub(crate) endpoint: Option<Endpoint>,
    /// Attributes of this process.
    pub(crate) resource: Vec<(String, String)>,
    /// Spans that may wait to be sent.
    pub(crate) most_queued: usize,
    /// Spans of one message.
    pub(crate) most_at_once: usize,
    /// Spans wait for others at most this long.
    pub(crate) delay: Duration,
}

/// Reads the variables, and says which of them cannot be used.
#[derive(Debug)]
struct Variables<F> {
    variable: F,
    warnings: Vec<String>,
}

impl TraceSettings {
    /// The settings, and warnings for the log. `None` if no traces are wanted: no endpoint, no sampler and no length of slow
    /// requests is given.
    pub fn read(
        variable: impl Fn(&str) -> Option<String>,
        slow_ms: Option<f64>,
    ) -> (Option<TraceSettings>, Vec<String>) {
        let mut variables = Variables { variable, warnings: Vec::new() };
        let settings = variables.read(slow_ms);
        (settings, variables.warnings)
    }
}

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    fn read(&mut self, slow_ms: Option<f64>) -> Option<TraceSettings> {
        if self.get("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return None;
        }
        let endpoint = self.endpoint();
        let has_sampler = self.get("OTEL_TRACES_SAMPLER").is_some();
        if endpoint.is_none() && !has_sampler && slow_ms.is_none() {
            return None;
        }
        // Without an endpoint and a sampler only slow and failed requests are kept.
        let default = if endpoint.is_none() { "parentbased_always_off" } else { "parentbased_always_on" };
        let sampler = self.sampler(default);
        let most_queued = self.whole("OTEL_BSP_MAX_QUEUE_SIZE", 2048) as usize;
        Some(TraceSettings {
            sampler,
            slow: slow_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()),
            endpoint,
            resource: self.resource(),
            most_queued,
            most_at_once: (self.whole("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512) as usize).min(most_queued),
            delay: Duration::from_millis(self.whole("OTEL_BSP_SCHEDULE_DELAY", 5000)),
        })
    }

    /// A variable; one that is empty counts as not set.
    fn get(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The variable for traces alone, else the one for all signals.
    fn of_traces(&self, end: &str) -> Option<(String, String)> {
        let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{end}"), format!("OTEL_EXPORTER_OTLP_{end}")];
        names.into_iter().find_map(|name| self.get(&name).map(|text| (name, text)))
    }

    fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    fn whole(&mut self, name: &str, default: u64) -> u64 {
        let Some(text) = self.get(name) else { return default };
        text.parse().ok().filter(|&number| number > 0).unwrap_or_else(|| {
            self.warn(format!("{name} is a positive whole number, got `{text}`; {default} is used"));
            default
        })
    }

    fn sampler(&mut self, default: &str) -> Sampler {
        let name = self.get("OTEL_TRACES_SAMPLER").unwrap_or_else(|| default.to_owned());
        let (kind, is_parent_based) = match name.strip_prefix("parentbased_") {
            Some(kind) => (kind, true),
            None => (&*name, false),
        };
        let share = match kind {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => self.ratio(),
            _ => {
                self.warn(format!(
                    "OTEL_TRACES_SAMPLER is always_on, always_off, traceidratio, or one of these behind parentbased_, got \
                     `{name}`; {default} is used"
                ));
                return Sampler { share: f64::from(u8::from(default.ends_with("on"))), is_parent_based: true };
            }
        };
        Sampler { share, is_parent_based }
    }

    fn ratio(&mut self) -> f64 {
        let Some(text) = self.get("OTEL_TRACES_SAMPLER_ARG") else { return 1.0 };
        text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).unwrap_or_else(|| {
            self.warn(format!("OTEL_TRACES_SAMPLER_ARG is a share between 0 and 1, got `{text}`; 1 is used"));
            1.0
        })
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        match self.get("OTEL_TRACES_EXPORTER").as_deref() {
            Some("none") => return None,
            None | Some("otlp") => {}
            Some(other) => self.warn(format!("OTEL_TRACES_EXPORTER is otlp or none, got `{other}`; otlp is used")),
        }
        if let Some((name, text)) = self.of_traces("PROTOCOL").filter(|(_, text)| text != "http/protobuf") {
            self.warn(format!(
                "{name}: traces are sent as http/protobuf, not as `{text}`; a collector has port 4318 for it"
            ));
        }
        let of_traces = self.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let (name, url) = if let Some(url) = of_traces {
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)
        } else {
            let url = self.get("OTEL_EXPORTER_OTLP_ENDPOINT")?;
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}{TRACES_PATH}", url.trim_end_matches('/')))
        };
        let timeout =
            self.of_traces("TIMEOUT").map_or(Ok(10_000), |(name, text)| text.parse().map_err(|_| (name, text)));
        let timeout = timeout.unwrap_or_else(|(name, text)| {
            self.warn(format!("{name} is a whole number of milliseconds, got `{text}`; 10000 is used"));
            10_000
        });
        let gzips = match self.of_traces("COMPRESSION") {
            Some((_, text)) if text == "gzip" => true,
            Some((name, text)) if text != "none" => {
                self.warn(format!("{name} is gzip or none, got `{text}`; none is used"));
                false
            }
            _ => false,
        };
        let headers = self.headers();
        let place = place(&url).map_err(|why| self.warn(format!("{name}: {why}; no traces are sent"))).ok()?;
        let (host, port, path) = place;
        Some(Endpoint { host, port, path, headers, timeout: Duration::from_millis(timeout), gzips })
    }

    /// Values are secrets as a rule, so a warning has the name only.
    fn headers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        let Some((variable, text)) = self.of_traces("HEADERS") else { return Vec::new() };
        let mut headers = Vec::new();
        for (place, pair) in pairs(&text).enumerate() {
            let header = pair.as_ref().and_then(|(name, value)| {
                let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
                let mut value = HeaderValue::from_str(value).ok()?;
                value.set_sensitive(true);
                Some((name, value))
            });
            match header {
                Some(header) => headers.push(header),
                None => self
                    .warn(format!("{variable}: entry {} is not a header, as in key=value; it is left out", place + 1)),
            }
        }
        headers
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        let mut resource = Vec::new();
        let text = self.get("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        for (place, pair) in pairs(&text).enumerate() {
            match pair {
                Some(pair) => resource.push(pair),
                None => self.warn(format!(
                    "OTEL_RESOURCE_ATTRIBUTES: entry {} is not an attribute, as in key=value; it is left out",
                    place + 1
                )),
            }
        }
        if let Some(name) = self.get("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.insert(0, ("service.name".into(), name));
        } else if !resource.iter().any(|(key, _)| key == "service.name") {
            resource.insert(0, ("service.name".into(), "jitney".into()));
        }
        resource
    }
}

/// `key=value` pairs between commas; values may have percent codes. `None` for what has no key and value.
fn pairs(text: &str) -> impl Iterator<Item = Option<(String, String)>> {
    text.split(',').map(str::trim).filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=')?;
        let key = key.trim();
        (!key.is_empty()).then_some((key.to_owned(), percent_decoded(value.trim())?))
    })
}

fn percent_decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Host, port and path of an URL.
fn place(url: &str) -> Result<(String, u16, String), String> {
    if url.starts_with("https://") {
        return Err(format!(
            "`{url}`: traces are not sent over TLS; send them to a collector on this machine, which can"
        ));
    }
    let wrong = || format!("expected an URL such as http://127.0.0.1:4318, got `{url}`");
    let uri: hyper::Uri = url.parse().map_err(|_| wrong())?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(wrong)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((host.to_owned(), uri.port_u16().unwrap_or(80), path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)], slow_ms: Option<f64>) -> (Option<TraceSettings>, Vec<String>) {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        TraceSettings::read(variable, slow_ms)
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn nothing_is_traced_unless_somebody_asks() {
        assert_eq!(read(&[], None), (None, vec![]));
        assert_eq!(read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")], Some(1.0)), (None, vec![]));
        let (settings, _) = read(&[], Some(250.0));
        let settings = settings.unwrap();
        assert_eq!((settings.slow, settings.sampler.share), (Some(Duration::from_millis(250)), 0.0));
        assert!(read(&[("OTEL_TRACES_SAMPLER", "always_on")], None).0.is_some());
        assert!(read(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")], None).0.is_none());
    }

    #[test]
    fn an_endpoint_has_its_path_and_its_headers() {
        let (settings, warnings) = read(
            &[
                ENDPOINT,
                ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b, bad ,x-two=2"),
                ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", ""),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
                ("OTEL_SERVICE_NAME", "mine"),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,place=here"),
            ],
            None,
        );
        let settings = settings.unwrap();
        let endpoint = settings.endpoint.unwrap();
        assert_eq!(endpoint.url(), "http://collector:4318/v1/traces");
        assert_eq!((endpoint.headers.len(), endpoint.headers[0].1.to_str().unwrap()), (2, "a b"));
        assert_eq!((endpoint.gzips, endpoint.timeout), (true, Duration::from_millis(250)));
        let resource = [("service.name", "mine"), ("place", "here")].map(|(key, value)| (key.into(), value.into()));
        assert_eq!((&settings.resource[..], settings.sampler.share), (&resource[..], 1.0));
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("entry 2") && !warnings[0].contains("bad"), "{}", warnings[0]);
        let (settings, _) = read(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://[::1]:9/x?y=1")], None);
        assert_eq!(settings.unwrap().endpoint.unwrap().url(), "http://[::1]:9/x?y=1");
    }

    #[test]
    fn bad_values_are_named_and_do_not_stop_the_server() {
        for (name, value, used) in [
            ("OTEL_TRACES_SAMPLER", "jaeger_remote", "parentbased_always_on"),
            ("OTEL_BSP_SCHEDULE_DELAY", "-1", "5000"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "10000"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "none"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
            ("OTEL_TRACES_EXPORTER", "zipkin", "otlp"),
        ] {
            let (settings, warnings) = read(&[ENDPOINT, (name, value)], None);
            assert!(settings.unwrap().endpoint.is_some());
            let [warning] = &warnings[..] else { panic!("{name}: {warnings:?}") };
            assert!([name, value, used].iter().all(|word| warning.contains(word)), "{warning}");
        }
        let ratio = [ENDPOINT, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
        assert!(read(&ratio, None).1[0].contains("between 0 and 1, got `2`"));
        for url in ["https://collector:4318", "collector:4318", "unix:/x", "http://"] {
            let (settings, warnings) = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", url)], None);
            assert!(settings.is_none() && warnings[0].contains("no traces are sent"), "{url}: {warnings:?}");
        }
    }

    #[test]
    fn a_sampler_takes_its_share_and_respects_the_parent() {
        let of = |share, is_parent_based| Sampler { share, is_parent_based };
        let parent = |is_sampled| Some(TraceContext { trace: 1, span: 1, is_sampled });
        for share in [0.0, 1.0] {
            assert!(of(share, true).samples(1, parent(true)) && !of(share, true).samples(1, parent(false)));
            assert_eq!(of(share, false).samples(1, parent(true)), share > 0.0);
            assert_eq!(of(share, true).samples(u128::MAX, None), share > 0.0);
        }
        let sampled = (0..10_000).filter(|_| of(0.1, true).samples(TraceContext::root().trace, None)).count();
        assert!((900..1_100).contains(&sampled), "{sampled}");
    }
}
