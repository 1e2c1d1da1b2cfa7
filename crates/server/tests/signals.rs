//! A whole server with fake workers, and the signals that end it. One test: signals go to the process.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

#[path = "supervise/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the supervisor, which use more of it")]
mod support;

use jitney_server::run::serve::serve;
use rustix::process::{Signal, getpid, kill_process};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::{LONG, fake_worker, server_options, settings, target};

struct Server {
    socket: PathBuf,
    exit_code: JoinHandle<i32>,
}

impl Server {
    fn start(directory: &Path, does: &str, grace_s: f64) -> Server {
        let socket = directory.join(does.replace(' ', "-"));
        let mut server = server_options();
        (server.listen, server.drain_grace_s) = (vec![format!("unix:{}", socket.display())], grace_s);
        let targets = vec![target("a", &[does], serde_json::json!({}))];
        let settings = settings(&server, targets, &fake_worker(), 2);
        Server { socket, exit_code: std::thread::spawn(|| serve(settings)) }
    }

    /// Sends a request without waiting for the answer; `None` while the port is closed.
    fn send(&self, request: &str) -> Option<UnixStream> {
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.write_all(request.as_bytes()).unwrap();
        Some(stream)
    }

    /// Asks again until the answer holds this text.
    fn until(&self, path: &str, text: &str) {
        let begin = Instant::now();
        let mut answer = String::new();
        while !answer.contains(text) {
            assert!(begin.elapsed() < LONG, "no {text:?} in {answer}");
            std::thread::yield_now();
            answer.clear();
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            if let Some(mut stream) = self.send(&request) {
                stream.read_to_string(&mut answer).unwrap();
            }
        }
    }
}

fn terminate() {
    kill_process(getpid(), Signal::TERM).unwrap();
}

#[test]
fn a_signal_ends_it_in_order_and_a_second_one_at_once() {
    let directory = tempfile::tempdir().unwrap();

    let loading = Server::start(directory.path(), "load without end", 0.0);
    loading.until("/a", "loading");
    let begin = Instant::now();
    terminate();
    assert_eq!(loading.exit_code.join().unwrap(), 0);
    assert!(begin.elapsed().as_secs_f64() < 4.0, "it waited for the load");

    let serving = Server::start(directory.path(), "serve", 0.0);
    serving.until("/readyz", "200 OK");
    terminate();
    assert_eq!(serving.exit_code.join().unwrap(), 0);

    let stuck = Server::start(directory.path(), "never answer", 3600.0);
    stuck.until("/readyz", "200 OK");
    let request = "POST /a HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 1\r\n\r\nx";
    let _waiting = stuck.send(request).unwrap();
    stuck.until("/metrics", "jitney_running_items{deployment=\"a\"} 1");
    terminate();
    // During the grace it is still there, and says that it is leaving.
    stuck.until("/readyz", "shutting down");
    // What comes within 300 ms of the first is of the same burst.
    std::thread::sleep(Duration::from_millis(400));
    let begin = Instant::now();
    terminate();
    assert_eq!(stuck.exit_code.join().unwrap(), 130);
    assert!(begin.elapsed().as_secs_f64() < 4.0, "it waited for the batch");
}
