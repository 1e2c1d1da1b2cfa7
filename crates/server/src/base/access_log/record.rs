//! What the access log says of one request, as text and as JSON.

use crate::base::access_log::timestamp;
use jitney_core::tables::outcome::Outcome;
use serde::Serialize;
use std::io::Write;
use std::net::IpAddr;
use std::time::SystemTime;

/// One line of the access log. What is not known is left out.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Record {
    /// When the request began.
    #[serde(skip)]
    pub(super) at: SystemTime,
    pub(super) request_id: String,
    pub(super) protocol: &'static str,
    /// The address at the other end of the connection; `None` over a Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<IpAddr>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) method: String,
    /// The path without the query, which may hold secrets of the client.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deployment: Option<String>,
    #[serde(serialize_with = "reason", skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<Outcome>,
    pub(super) status: u16,
    pub(super) duration_ms: f64,
    pub(super) items: usize,
    pub(super) batch_size: u64,
    pub(super) request_bytes: u64,
    pub(super) answer_bytes: u64,
}

#[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn reason<S: serde::Serializer>(outcome: &Option<Outcome>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(outcome.map_or("", Outcome::reason))
}

/// A line as JSON, with the fields that all lines of the log have.
#[derive(Serialize)]
struct JsonLine<'r, T> {
    timestamp: &'r str,
    level: &'r str,
    message: &'r str,
    #[serde(flatten)]
    rest: &'r T,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
}

impl Format {
    /// Appends a line for one request.
    pub(super) fn write(self, out: &mut Vec<u8>, record: &Record) {
        match self {
            Format::Json => json(out, record.at, "INFO", "access", record),
            Format::Text => {
                timestamp::write(out, record.at);
                let Record { request_id, protocol, status, .. } = record;
                // A `Vec` takes every write.
                let _ = write!(out, "  INFO access request_id={request_id} protocol={protocol}");
                if let Some(client) = record.client {
                    let _ = write!(out, " client={client}");
                }
                let texts = [
                    ("method", Some(&*record.method)),
                    ("path", Some(&*record.path)),
                    ("deployment", record.deployment.as_deref()),
                    ("outcome", record.outcome.map(Outcome::reason)),
                ];
                for (name, text) in texts {
                    if let Some(text) = text.filter(|text| !text.is_empty()) {
                        let _ = write!(out, " {name}={text}");
                    }
                }
                let _ = writeln!(
                    out,
                    " status={status} duration_ms={} items={} batch_size={} request_bytes={} answer_bytes={}",
                    record.duration_ms, record.items, record.batch_size, record.request_bytes, record.answer_bytes
                );
            }
        }
    }

    /// Appends a line that says how many were dropped: there was no room for them, or they could not be written.
    pub(super) fn write_dropped(self, out: &mut Vec<u8>, dropped: u64, error: Option<&std::io::Error>) {
        let at = SystemTime::now();
        let why = match error {
            Some(error) => format!("they could not be written: {error}"),
            None => "nothing read the log fast enough".to_owned(),
        };
        let message = format!("the access log lost {dropped} lines, because {why}");
        match self {
            Format::Json => json(out, at, "WARN", &message, &serde_json::json!({ "dropped": dropped })),
            Format::Text => {
                timestamp::write(out, at);
                let _ = writeln!(out, "  WARN {message}");
            }
        }
    }
}

fn json<T: Serialize>(out: &mut Vec<u8>, at: SystemTime, level: &str, message: &str, rest: &T) {
    let mut instant = Vec::with_capacity(32);
    timestamp::write(&mut instant, at);
    let timestamp = std::str::from_utf8(&instant).unwrap_or_default();
    // Strings, numbers and a `Vec`: nothing here can fail.
    let _ = serde_json::to_writer(&mut *out, &JsonLine { timestamp, level, message, rest });
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn record() -> Record {
        Record {
            at: UNIX_EPOCH + Duration::from_millis(1500),
            request_id: "a\"b".into(),
            protocol: "native",
            client: Some(IpAddr::from([10, 0, 0, 7])),
            method: "POST".into(),
            path: "/shout".into(),
            deployment: Some("shout".into()),
            outcome: Some(Outcome::QueueFull),
            status: 429,
            duration_ms: 1.25,
            items: 1,
            batch_size: 0,
            request_bytes: 5,
            answer_bytes: 7,
        }
    }

    fn written(format: Format, record: &Record) -> String {
        let mut out = Vec::new();
        format.write(&mut out, record);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_of_text_has_names_and_values() {
        assert_eq!(
            written(Format::Text, &record()),
            "1970-01-01T00:00:01.500000Z  INFO access request_id=a\"b protocol=native client=10.0.0.7 \
             method=POST path=/shout deployment=shout outcome=queue_full status=429 duration_ms=1.25 items=1 batch_size=0 request_bytes=5 \
             answer_bytes=7\n"
        );
        let unknown = Record { client: None, deployment: None, outcome: None, path: String::new(), ..record() };
        let line = written(Format::Text, &unknown);
        assert!(["client", "deployment", "outcome", "path"].iter().all(|name| !line.contains(name)), "{line}");
    }

    #[test]
    fn a_line_of_json_has_the_same_fields() {
        let line = written(Format::Json, &record());
        assert!(line.ends_with("}\n") && line.matches('\n').count() == 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "timestamp": "1970-01-01T00:00:01.500000Z", "level": "INFO", "message": "access",
                "request_id": "a\"b", "protocol": "native", "client": "10.0.0.7", "method": "POST", "path": "/shout",
                "deployment": "shout",
                "outcome": "queue_full", "status": 429, "duration_ms": 1.25, "items": 1, "batch_size": 0,
                "request_bytes": 5, "answer_bytes": 7
            })
        );
        let unknown = Record { deployment: None, outcome: None, ..record() };
        assert!(!written(Format::Json, &unknown).contains("outcome"));
    }
}
