//! Where the lines of the log go. If they cannot be written, because the disk is full, they are counted, and the log says so when it
//! can.

use std::io::{Error, Result, Write};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Counts the lines that its output does not take.
#[derive(Debug)]
pub(crate) struct LogOutput<W> {
    output: W,
    is_json: bool,
    lost: u64,
    error: Option<Error>,
}

impl<W: Write> LogOutput<W> {
    pub(crate) fn new(output: W, is_json: bool) -> LogOutput<W> {
        LogOutput { output, is_json, lost: 0, error: None }
    }

    fn lose(&mut self, error: Error) {
        self.lost += 1;
        self.error = Some(error);
    }

    /// The line about the lines that are missing. The last of them may be there in part: a new line begins first.
    fn loss(&self) -> String {
        let why = self.error.as_ref().map(ToString::to_string).unwrap_or_default();
        let text = format!("{} lines of this log are missing: they could not be written: {why}", self.lost);
        let mut now = String::new();
        // A `String` takes every write.
        let _ = SystemTime.format_time(&mut Writer::new(&mut now));
        if self.is_json {
            let line = serde_json::json!({ "timestamp": now, "level": "WARN", "message": text, "lost": self.lost });
            return format!("\n{line}\n");
        }
        format!("\n{now}  WARN {text}; free some space where the log is\n")
    }
}

impl<W: Write> Write for LogOutput<W> {
    /// Takes one line. It never fails: a server does not end because its log cannot be written.
    fn write(&mut self, line: &[u8]) -> Result<usize> {
        if self.lost > 0 {
            match self.output.write_all(self.loss().as_bytes()) {
                Ok(()) => self.lost = 0,
                Err(error) => {
                    self.lose(error);
                    return Ok(line.len());
                }
            }
        }
        if let Err(error) = self.output.write_all(line) {
            self.lose(error);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.output.flush()
    }
}
