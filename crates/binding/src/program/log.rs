//! The log of an engine inside a program: it goes to Python's own `logging`, whose owner decides what becomes of it.

use crate::server::{filter, lines};
use jitney_server::workers::settings::Settings;
use pyo3::prelude::*;
use std::fmt;
use std::io;
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Lines go through a separate thread, the only one here that ever waits for the interpreter.
pub(crate) fn log_to_python(settings: &Settings) -> WorkerGuard {
    let (writer, guard) = lines().finish(Logger);
    let logs = tracing_subscriber::fmt().with_env_filter(filter(&settings.server.log_level)).with_writer(writer);
    // A second engine in one process keeps the first one's log.
    let _ = logs.log_internal_errors(false).with_ansi(false).event_format(Line).try_init();
    guard
}

/// The number of a level in `logging`, a tab, and what is said.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            Level::DEBUG => 10,
            Level::TRACE => 5,
        };
        write!(writer, "{level}\t")?;
        context.format_fields(writer.by_ref(), event)
    }
}

/// Takes one line at a time, as `lines` gives them.
struct Logger;

impl io::Write for Logger {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let (level, text) = text.split_once('\t').unwrap_or(("30", &text));
        let logged = Python::try_attach(|py| -> PyResult<()> {
            let logger = py.import("logging")?.call_method1("getLogger", ("jitney",))?;
            let level: u8 = level.parse().unwrap_or(30);
            // As an argument, because the text may have a % in it.
            logger.call_method1("log", (level, "%s", text)).map(drop).inspect_err(|error| error.print(py))
        });
        // The interpreter is ending, and its log handlers are closed.
        if logged.is_none() {
            let _ = writeln!(io::stderr(), "jitney: {text}");
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
