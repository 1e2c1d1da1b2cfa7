//! A server of threads that answers as a test wants it to.

use jitney_bench::motion::{Input, run};
use jitney_bench::rules::plan::{Arrivals, Load, Plan};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Stands in an answer for a pause of 50 ms; is not sent.
pub(crate) const PAUSE: &str = "<pause>";

/// What was seen of the clients.
#[derive(Default)]
pub(crate) struct Seen {
    /// The head and the body of each request.
    pub(crate) requests: Mutex<Vec<(String, String)>>,
    pub(crate) connections: AtomicUsize,
    pub(crate) open: AtomicUsize,
    pub(crate) most_open: AtomicUsize,
}

pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) seen: Arc<Seen>,
}

/// `answer` gets the number of the request; `None` hangs up.
pub(crate) fn serve(answer: impl Fn(usize) -> Option<String> + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, answer) = (Arc::new(Seen::default()), Arc::new(answer));
    let here = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (seen, answer) = (here.clone(), answer.clone());
            std::thread::spawn(move || {
                let open = seen.open.fetch_add(1, Ordering::SeqCst) + 1;
                seen.most_open.fetch_max(open, Ordering::SeqCst);
                let _ = converse(&stream.unwrap(), &seen, &*answer);
                seen.open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    Server { port, seen }
}

fn converse(stream: &TcpStream, seen: &Seen, answer: &dyn Fn(usize) -> Option<String>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut is_first = true;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        if std::mem::take(&mut is_first) {
            seen.connections.fetch_add(1, Ordering::SeqCst);
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body)?;
        let number = {
            let mut requests = seen.requests.lock().unwrap();
            requests.push((head, String::from_utf8(body).unwrap()));
            requests.len() - 1
        };
        let Some(text) = answer(number) else { return Ok(()) };
        let mut stream = stream;
        for (number, piece) in text.split(PAUSE).enumerate() {
            if number > 0 {
                std::thread::sleep(Duration::from_millis(50));
            }
            stream.write_all(piece.as_bytes())?;
        }
        if text.contains("connection: close") {
            return Ok(());
        }
    }
}

pub(crate) fn closed(port: u16, users: usize, duration_s: f64) -> Plan {
    let load = Load::Closed { users, ramp_s: 0.0, think_s: (0.0, 0.0) };
    Plan {
        host: "127.0.0.1".into(),
        port,
        path: "/model?x=1".into(),
        headers: vec![("x-extra".into(), "yes".into())],
        items_per_request: 1,
        stream: None,
        load,
        warmup_s: 0.0,
        duration_s,
        timeout_s: 30.0,
        interval_s: duration_s / 4.0,
        threads: 1,
        seed: 1,
    }
}

pub(crate) fn open(port: u16, rate_per_s: f64, connections: usize, duration_s: f64) -> Plan {
    let load = Load::Open { rate_per_s, arrivals: Arrivals::Constant, burst: 1, connections };
    Plan { load, ..closed(port, 1, duration_s) }
}

pub(crate) fn inputs(bodies: &[&str]) -> Vec<Input> {
    bodies.iter().map(|body| Input { content_type: "text/plain".into(), body: body.as_bytes().to_vec() }).collect()
}

/// Carries a plan out and returns the run as the document has it.
pub(crate) fn measure(plan: Plan, bodies: &[&str]) -> Value {
    plan.check().unwrap();
    let done = run(plan, &inputs(bodies), |_: Option<&_>| ControlFlow::Continue(()));
    serde_json::to_value(done.unwrap().unwrap()).unwrap()
}

/// Waits for something that must come.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited without success: {what}");
}
