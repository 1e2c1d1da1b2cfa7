//! How a line of a worker is written.

use crate::base::access_log::timestamp;
use crate::workers::backends::backend::WorkerLog;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// Begins a line of the worker's own log: it is in the format of the log, and is written unchanged.
const OWN: u8 = 0x1e;
/// Begins a line in which a worker says which replica it is: `DEPLOYMENT/REPLICA`.
const NAME: u8 = 0x1f;

/// Which of its streams a worker wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// Who writes, and in which format.
#[derive(Debug)]
pub(crate) struct Writing {
    /// `deployment/replica`, or the target until the worker says its name.
    who: String,
    log: WorkerLog,
    /// The machine of a worker that runs elsewhere.
    host: Option<String>,
}

/// A line of the worker's own log in JSON.
#[derive(Deserialize)]
struct OwnLine {
    level: String,
    message: String,
    request_id: Option<String>,
    request_ids: Option<String>,
    #[serde(default)]
    traceback: String,
}

impl OwnLine {
    /// Writes it to the log of this process.
    fn log(&self) {
        let OwnLine { message, traceback, .. } = self;
        let requests = match (&self.request_id, &self.request_ids) {
            (Some(id), _) => format!(" (request {id})"),
            (None, Some(ids)) => format!(" (requests {ids})"),
            (None, None) => String::new(),
        };
        let text = format!("{message}{requests}\n{traceback}");
        let text = text.trim_end();
        if self.level == "ERROR" {
            tracing::error!("{text}");
        } else {
            tracing::warn!("{text}");
        }
    }
}

#[derive(Serialize)]
struct JsonLine<'l> {
    timestamp: String,
    level: &'static str,
    message: &'l str,
    deployment: &'l str,
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'l str>,
    stream: &'static str,
}

impl Writing {
    pub(super) fn new(target: String, log: WorkerLog) -> Writing {
        Writing { who: target, log, host: None }
    }

    /// What a worker of another machine prints.
    pub(super) fn of(target: String, host: String, log: WorkerLog) -> Writing {
        Writing { who: target, log, host: Some(host) }
    }

    /// Appends a line to what is written next.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, stream: Stream, line: &[u8]) {
        match line.first() {
            Some(&NAME) if stream == Stream::Stderr => self.who = String::from_utf8_lossy(&line[1..]).into_owned(),
            Some(&OWN) if self.log == WorkerLog::Program => {
                if let Ok(own) = serde_json::from_slice::<OwnLine>(&line[1..]) {
                    own.log();
                } else {
                    tracing::warn!("{}", String::from_utf8_lossy(&line[1..]));
                }
                return;
            }
            Some(&OWN) => out.extend_from_slice(String::from_utf8_lossy(&line[1..]).as_bytes()),
            _ if self.log == WorkerLog::Json => self.write_json(out, stream, &String::from_utf8_lossy(line)),
            _ => {
                out.extend_from_slice(self.who.as_bytes());
                if let Some(host) = &self.host {
                    out.push(b'@');
                    out.extend_from_slice(host.as_bytes());
                }
                out.extend_from_slice(b" | ");
                out.extend_from_slice(String::from_utf8_lossy(line).as_bytes());
            }
        }
        if line.first() != Some(&NAME) || stream != Stream::Stderr {
            out.push(b'\n');
        }
    }

    fn write_json(&self, out: &mut Vec<u8>, stream: Stream, message: &str) {
        let mut at = Vec::with_capacity(32);
        timestamp::write(&mut at, SystemTime::now());
        let named = self.who.rsplit_once('/').and_then(|(name, replica)| Some((name, replica.parse().ok()?)));
        let (deployment, replica) = named.map_or((&*self.who, None), |(name, replica)| (name, Some(replica)));
        let line = JsonLine {
            timestamp: String::from_utf8_lossy(&at).into_owned(),
            level: "INFO",
            message,
            deployment,
            replica,
            host: self.host.as_deref(),
            stream: if stream == Stream::Stdout { "stdout" } else { "stderr" },
        };
        // Strings and numbers into a `Vec`: nothing here can fail.
        let _ = serde_json::to_writer(out, &line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(log: WorkerLog, lines: &[(Stream, &[u8])]) -> String {
        let (mut writing, mut out) = (Writing::new("model.py".into(), log), Vec::new());
        lines.iter().for_each(|(stream, line)| writing.write(&mut out, *stream, line));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_has_the_name_of_its_replica() {
        use Stream::{Stderr, Stdout};
        let lines: [(Stream, &[u8]); 5] = [
            (Stdout, b"imported"),
            (Stderr, b"\x1fshout/3"),
            (Stdout, b"caf\xc3\xa9 \xff"),
            (Stderr, b"\x1e2026 ERROR its own"),
            (Stdout, b""),
        ];
        assert_eq!(
            written(WorkerLog::Text, &lines),
            "model.py | imported\nshout/3 | caf\u{e9} \u{fffd}\n2026 ERROR its own\nshout/3 | \n"
        );
    }

    #[test]
    fn json_has_fields_for_it() {
        let text = written(
            WorkerLog::Json,
            &[(Stream::Stderr, b"\x1fa/b/3"), (Stream::Stderr, b"x\xff"), (Stream::Stdout, b"\x1e{}")],
        );
        let (first, second) = text.split_once('\n').unwrap();
        let line: serde_json::Value = serde_json::from_str(first).unwrap();
        assert_eq!((&line["deployment"], &line["replica"]), (&"a/b".into(), &3.into()));
        assert_eq!((&line["stream"], &line["message"]), (&"stderr".into(), &"x\u{fffd}".into()));
        assert_eq!(second, "{}\n");
    }

    #[test]
    fn a_program_gets_what_workers_log_as_records_and_what_they_print_as_text() {
        let own: &[u8] = b"\x1e{\"level\": \"ERROR\", \"message\": \"failed\"}";
        let lines = [(Stream::Stdout, &b"printed"[..]), (Stream::Stderr, own), (Stream::Stderr, b"\x1enot JSON")];
        assert_eq!(written(WorkerLog::Program, &lines), "model.py | printed\n");
    }
}
