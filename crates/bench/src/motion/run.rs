//! A whole run: threads are started, their intervals put together, their counts added up.

use super::thread::Task;
use super::thread_life::{self, Report};
use crate::rules::intervals::{Interval, Window};
use crate::rules::plan::Plan;
use crate::rules::summary::{Point, Summary};
use crate::rules::totals::Totals;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often the callback is asked whether to continue, even without a new interval.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Threads start within this, and then all begin at one instant.
const HEAD_START: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(5);

/// A body to send.
#[derive(Clone, Debug)]
pub struct Input {
    /// What it is.
    pub content_type: String,
    /// Its bytes.
    pub body: Vec<u8>,
}

/// Sees each interval as it ends, and `None` now and then; breaks to end the run without a result.
pub trait Watch: FnMut(Option<&Point>) -> ControlFlow<()> {}
impl<F: FnMut(Option<&Point>) -> ControlFlow<()>> Watch for F {}

/// Loads the server; `None` if `watch` broke it off. The plan must have been checked.
pub fn run(plan: Plan, inputs: &[Input], mut watch: impl Watch) -> io::Result<Option<Summary>> {
    let window = window(&plan);
    let (stop, is_stopped) = watch::channel(false);
    let task = Task {
        address: reach(&plan.host, plan.port)?,
        requests: inputs.iter().map(|input| request(&plan, input)).collect(),
        window,
        begin: Instant::now() + HEAD_START,
        stop: is_stopped,
        plan: Arc::new(plan),
    };
    std::thread::scope(|scope| {
        let (threads, reports) = start(scope, &task)?;
        let series = follow(&window, threads.len(), &reports, &mut watch);
        if series.is_none() {
            // Threads that have ended already do not listen.
            let _ = stop.send(true);
        }
        let mut totals = Totals::default();
        for thread in threads {
            totals.merge(&thread.join().map_err(|_| io::Error::other("a thread of the load generator panicked"))??);
        }
        Ok(series.map(|series| Summary::new(&window, &totals, series)))
    })
}

type Threads<'scope> = Vec<std::thread::ScopedJoinHandle<'scope, io::Result<Totals>>>;

fn start<'scope>(scope: &'scope Scope<'scope, '_>, task: &Task) -> io::Result<(Threads<'scope>, Receiver<Report>)> {
    let (sender, reports) = channel();
    let mut threads = Vec::new();
    for number in 0..task.plan.threads {
        let (task, sender) = (task.clone(), sender.clone());
        let builder = std::thread::Builder::new().name(format!("jitney-bench-{number}"));
        threads.push(builder.spawn_scoped(scope, move || thread_life::run(number, task, &sender))?);
    }
    Ok((threads, reports))
}

/// Puts intervals together until all threads have ended; `None` if `watch` broke it off.
fn follow(window: &Window, threads: usize, reports: &Receiver<Report>, watch: &mut impl Watch) -> Option<Vec<Point>> {
    let mut open: BTreeMap<usize, (usize, Interval)> = BTreeMap::new();
    let mut series = Vec::new();
    loop {
        let report = match reports.recv_timeout(LOOK_EVERY) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => match watch(None) {
                ControlFlow::Continue(()) => continue,
                ControlFlow::Break(()) => return None,
            },
            Err(RecvTimeoutError::Disconnected) => return Some(series),
        };
        let (told, interval) = open.entry(report.number).or_default();
        *told += 1;
        interval.merge(&report.interval);
        if *told == threads {
            let point = Point::new(window, report.number, interval);
            open.remove(&report.number);
            if watch(Some(&point)).is_break() {
                return None;
            }
            series.push(point);
        }
    }
}

fn window(plan: &Plan) -> Window {
    let ns = |seconds: f64| Duration::from_secs_f64(seconds).as_nanos() as u64;
    let from_ns = ns(plan.warmup_s);
    Window { from_ns, to_ns: from_ns + ns(plan.duration_s).max(1), interval_ns: ns(plan.interval_s).max(1) }
}

/// The first address of this name at which somebody answers.
fn reach(host: &str, port: u16) -> io::Result<SocketAddr> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(_) => return Ok(address),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The bytes of a request: the same every time, so they are put together once.
fn request(plan: &Plan, input: &Input) -> Box<[u8]> {
    let host = if plan.host.contains(':') { format!("[{}]", plan.host) } else { plan.host.clone() };
    let mut lines = vec![format!("POST {} HTTP/1.1", plan.path)];
    if !plan.headers.iter().any(|(name, _)| name == "host") {
        lines.push(format!("host: {host}:{}", plan.port));
    }
    if !input.content_type.is_empty() {
        lines.push(format!("content-type: {}", input.content_type));
    }
    lines.extend(plan.headers.iter().map(|(name, value)| format!("{name}: {value}")));
    lines.push(format!("content-length: {}\r\n\r\n", input.body.len()));
    let head = lines.join("\r\n");
    [head.as_bytes(), &input.body].concat().into_boxed_slice()
}
