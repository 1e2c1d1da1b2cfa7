//! The generator against real sockets.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod support;

use jitney_bench::motion::run;
use jitney_bench::rules::parts::Dialect;
use jitney_bench::rules::plan::{Arrivals, Load, Plan};
use serde_json::Value;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use support::{OK, PAUSE, closed, inputs, measure, open, serve, until};

fn outcome(run: &Value) -> (u64, &str) {
    let outcome = &run["outcomes"][0];
    (outcome["status"].as_u64().unwrap(), outcome["reason"].as_str().unwrap())
}

/// The share of answered requests that took at least so long.
fn share_above(run: &Value, ms: f64) -> f64 {
    let curve = run["latency_curve"].as_array().unwrap();
    let below = curve.iter().filter(|point| point[1].as_f64().unwrap() < ms).map(|point| point[0].as_f64().unwrap());
    1.0 - below.fold(0.0, f64::max)
}

#[test]
fn users_keep_their_connections_and_take_inputs_in_turn() {
    let server = serve(|_| Some(OK.into()));
    let run = measure(closed(server.port, 4, 0.4), &["a", "b", "c"]);
    let requests = server.seen.requests.lock().unwrap();
    assert_eq!(server.seen.connections.load(Ordering::SeqCst), 4);
    assert_eq!(run["client"]["connections_opened"], 4);
    assert_eq!(run["requests"]["answered"].as_u64().unwrap(), requests.len() as u64);
    for letter in ["a", "b", "c"] {
        let count = requests.iter().filter(|(_, body)| body == letter).count();
        assert!(count.abs_diff(requests.len() / 3) <= 1);
    }
    let head = &requests[0].0;
    for line in ["POST /model?x=1 HTTP/1.1", "content-type: text/plain", "x-extra: yes", "content-length: 1"] {
        assert!(head.lines().any(|one| one == line), "{head}");
    }
}

#[test]
fn several_threads_share_users_and_inputs() {
    let server = serve(|_| Some(OK.into()));
    let mut plan = closed(server.port, 5, 0.4);
    plan.threads = 2;
    let run = measure(plan, &["a", "b"]);
    assert_eq!(server.seen.connections.load(Ordering::SeqCst), 5);
    assert_eq!(run["requests"]["answered"].as_u64().unwrap(), server.seen.requests.lock().unwrap().len() as u64);
    assert_eq!(run["series"].as_array().unwrap().len(), 4);
}

/// The first request after the beginning holds all answers up for a second, as a stop of the world would.
fn stalls(length: Duration) -> impl Fn(usize) -> Option<String> + Send + Sync {
    let until = Mutex::new(None);
    move |number| {
        let end = *until.lock().unwrap().get_or_insert_with(|| Instant::now() + length);
        if number > 0 || end > Instant::now() {
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
        }
        Some(OK.into())
    }
}

#[test]
fn a_stall_shows_in_the_latencies_of_all_who_would_have_come_meanwhile() {
    // With one connection only one request is ever in the stalled server: the others were not even sent.
    for connections in [1, 1000] {
        let server = serve(stalls(Duration::from_secs(1)));
        let run = measure(open(server.port, 100.0, connections, 2.0), &["a"]);
        assert_eq!(run["requests"]["answered"], 200 - 1);
        // Half of the schedule falls into the stall, and half of that waits for more than half a second.
        assert!(run["latency_ms"]["max"].as_f64().unwrap() > 900.0);
        assert!(share_above(&run, 500.0) > 0.2, "{}", share_above(&run, 500.0));
    }
}

#[test]
fn an_open_loop_opens_no_more_connections_than_it_may() {
    let server = serve(|_| {
        std::thread::sleep(Duration::from_millis(50));
        Some(OK.into())
    });
    let run = measure(open(server.port, 200.0, 3, 0.5), &["a"]);
    // One more was there to find out whether somebody answers.
    assert!(server.seen.most_open.load(Ordering::SeqCst) <= 4);
    assert_eq!(run["client"]["connections_opened"], 3);
    assert_eq!(run["requests"]["due"], 99);
}

#[test]
fn a_rate_that_cannot_be_kept_does_not_keep_answers_from_being_read() {
    let server = serve(|_| Some(OK.into()));
    let mut plan = open(server.port, 1e6, 4, 0.4);
    plan.timeout_s = 0.2;
    let run = measure(plan, &["a"]);
    let in_the_window: u64 =
        run["series"].as_array().unwrap().iter().map(|one| one["answered"].as_u64().unwrap()).sum();
    assert!(in_the_window > 0);
    assert!(run["requests"]["due"].as_u64().unwrap() > 399_000);
    assert_eq!(run["outcomes"].as_array().unwrap().last().unwrap()["reason"], "timeout");
}

#[test]
fn a_burst_is_sent_at_once() {
    let (inside, full) = (Mutex::new(0), Condvar::new());
    // No request is answered before the whole burst has arrived.
    let server = serve(move |_| {
        let mut count = inside.lock().unwrap();
        *count += 1;
        full.notify_all();
        let (_count, waited) =
            full.wait_timeout_while(count, Duration::from_secs(20), |count| *count % 6 != 0).unwrap();
        (!waited.timed_out()).then(|| OK.into())
    });
    let mut plan = open(server.port, 6.0, 100, 1.0);
    plan.load = Load::Open { rate_per_s: 6.0, arrivals: Arrivals::Bursts, burst: 6, connections: 100 };
    // A seed whose only burst is in the first second would be luck: look for one.
    plan.seed = (1..1000).find(|&seed| bursts(seed) == 1).unwrap();
    let run = measure(plan, &["a"]);
    assert_eq!((&run["requests"]["answered"], &run["requests"]["failed"]), (&6.into(), &0.into()));
}

fn bursts(seed: u64) -> usize {
    let schedule = jitney_bench::rules::arrivals::Schedule::new(Arrivals::Bursts, 6.0, 6, seed);
    schedule.take_while(|&at| at < 1_000_000_000).count() / 6
}

#[test]
fn a_request_that_is_not_answered_in_time_has_failed_and_is_given_up() {
    let server = serve(|_| {
        std::thread::sleep(Duration::from_millis(400));
        Some(OK.into())
    });
    let mut plan = closed(server.port, 2, 0.2);
    plan.timeout_s = 0.1;
    let run = measure(plan, &["a"]);
    assert_eq!(outcome(&run), (0, "timeout"));
    assert_eq!(run["latency_ms"], Value::Null);
    until("given up connections are closed", || server.seen.open.load(Ordering::SeqCst) == 0);
}

#[test]
fn a_connection_that_ends_without_an_answer_is_told() {
    let server = serve(|_| None);
    let run = measure(closed(server.port, 1, 0.2), &["a"]);
    assert_eq!(outcome(&run), (0, "closed"));
    assert_eq!(run["requests"]["answered"], 0);
}

#[test]
fn a_server_that_closes_after_each_answer_is_asked_again_on_a_new_connection() {
    let server = serve(|_| Some(OK.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")));
    let run = measure(closed(server.port, 1, 0.2), &["a"]);
    assert_eq!(run["requests"]["failed"], 0);
    assert_eq!(run["client"]["connections_opened"], run["requests"]["answered"]);
}

#[test]
fn a_connection_that_the_server_gave_up_while_idle_is_not_used() {
    // It says that it keeps the connection, and closes it.
    let server = serve(|number| {
        Some(if number % 2 == 0 { OK.into() } else { OK.replace("\r\n\r\n", "\r\nx: connection: close\r\n\r\n") })
    });
    let mut plan = closed(server.port, 1, 0.5);
    plan.load = Load::Closed { users: 1, ramp_s: 0.0, think_s: (0.02, 0.02) };
    let run = measure(plan, &["a"]);
    assert!(run["requests"]["answered"].as_u64().unwrap() > 2);
    assert!(run["client"]["connections_opened"].as_u64().unwrap() > 1);
    assert_eq!(run["requests"]["failed"], 0, "{}", run["outcomes"]);
}

#[test]
fn answers_in_chunks_and_what_jitney_says_of_them_are_understood() {
    let text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-jitney-batch-size: 7\r\nserver-timing: queue;dur=1, \
        batch;dur=2, model;dur=3\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let server = serve(move |_| Some(text.into()));
    let run = measure(closed(server.port, 2, 0.2), &["a"]);
    assert_eq!(run["batch_sizes"]["7"], run["requests"]["answered"]);
    assert!((run["server_ms"]["model"]["p50"].as_f64().unwrap() - 3.0).abs() < 0.01);
    assert_eq!(run["series"][0]["queue_mean_ms"], 1.0);
}

/// A stream whose second part comes 50 ms after the first one; the rest comes with the second.
fn in_parts(rest: &str) -> String {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    format!("{head}{}{PAUSE}{}0\r\n\r\n", chunk("data: 1\n\n"), chunk(&format!("data: 2\n\ndata: 3\n\n{rest}")))
}

#[test]
fn parts_of_a_stream_are_counted_and_timed() {
    let server = serve(|_| Some(in_parts("event: end\ndata: {\"usage\":{\"input\":1,\"output\":6}}\n\n")));
    let mut plan = closed(server.port, 2, 0.5);
    plan.stream = Some(Dialect::Native);
    let run = measure(plan, &["a"]);
    let (answered, parts) = (run["requests"]["answered"].as_u64().unwrap(), &run["parts"]);
    assert!(answered > 2);
    assert!(parts["count"].as_u64().unwrap() <= 3 * answered);
    assert!((parts["tokens_per_s"].as_f64().unwrap() / parts["rate_per_s"].as_f64().unwrap() - 2.0).abs() < 1e-9);
    // Of the two gaps of an answer one is the pause, and the other is of parts that came together.
    assert!(parts["gap_ms"]["max"].as_f64().unwrap() >= 45.0);
    assert!(parts["gap_ms"]["p50"].as_f64().unwrap() < 45.0);
    assert!(run["latency_ms"]["p50"].as_f64().unwrap() >= parts["first_ms"]["p50"].as_f64().unwrap() + 40.0);
    assert_eq!(run["client"]["connections_opened"], 2);
}

#[test]
fn a_stream_that_fails_or_has_no_end_is_a_failure_though_its_status_is_200() {
    let problem = "event: error\ndata: {\"reason\":\"worker_lost\"}\n\n";
    for (rest, reason) in [(problem, "worker_lost"), ("", "no_end")] {
        let server = serve(move |_| Some(in_parts(rest)));
        let mut plan = closed(server.port, 1, 0.2);
        plan.stream = Some(Dialect::Native);
        let run = measure(plan, &["a"]);
        assert_eq!(outcome(&run), (200, reason));
        assert_eq!((&run["requests"]["answered"], &run["parts"]["first_ms"]), (&0.into(), &Value::Null));
        assert!(run["parts"]["count"].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_connection_that_ends_within_a_stream_is_a_failure() {
    let cut = |text: String| text.replace("0\r\n\r\n", "").replace(" OK\r\n", " OK\r\nconnection: close\r\n");
    let server = serve(move |_| Some(cut(in_parts(""))));
    let mut plan = closed(server.port, 1, 0.2);
    plan.stream = Some(Dialect::Native);
    let run = measure(plan, &["a"]);
    assert_eq!(outcome(&run), (0, "closed"));
    assert!(run["parts"]["count"].as_u64().unwrap() > 0);
}

#[test]
fn what_is_no_http_is_told() {
    let server = serve(|_| Some("220 mail.example ESMTP\r\n\r\n".into()));
    assert_eq!(outcome(&measure(closed(server.port, 1, 0.1), &["a"])), (0, "malformed"));
}

#[test]
fn the_warm_up_does_not_count() {
    let calls = AtomicUsize::new(0);
    let server = serve(move |_| {
        // The first answers are slow, as those of a server that still compiles.
        if calls.fetch_add(1, Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(300));
        }
        Some(OK.into())
    });
    let mut plan = closed(server.port, 1, 0.3);
    plan.warmup_s = 0.6;
    let run = measure(plan, &["a"]);
    let requests = server.seen.requests.lock().unwrap().len() as u64;
    assert!(run["requests"]["due"].as_u64().unwrap() < requests);
}

#[test]
fn users_ramp_up_and_think() {
    let server = serve(|_| Some(OK.into()));
    let mut plan = closed(server.port, 2, 1.0);
    plan.load = Load::Closed { users: 2, ramp_s: 1.0, think_s: (0.2, 0.3) };
    let run = measure(plan, &["a"]);
    let due: Vec<u64> = run["series"].as_array().unwrap().iter().map(|point| point["due"].as_u64().unwrap()).collect();
    // One user asks at most every 0.2 s; the second begins after half a second.
    assert!(due[0] + due[1] <= 3 && due[2] + due[3] <= 6, "{due:?}");
    assert!(due[2] + due[3] >= 1);
}

#[test]
fn nobody_there_is_an_error_at_once() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let done = run(closed(port, 1, 60.0), &inputs(&["a"]), |_: Option<&_>| ControlFlow::Continue(()));
    assert!(done.is_err());
}

#[test]
fn whoever_watches_may_end_it() {
    let server = serve(|_| Some(OK.into()));
    let done = run(closed(server.port, 3, 3600.0), &inputs(&["a"]), |_: Option<&_>| ControlFlow::Break(()));
    assert!(done.unwrap().is_none());
    until("its connections are closed", || server.seen.open.load(Ordering::SeqCst) == 0);
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let plan = closed(1, 1, 1.0);
    for (wrong, named) in [
        (Plan { duration_s: f64::NAN, ..plan.clone() }, "NaN"),
        (Plan { threads: 2, ..plan.clone() }, "2 thread"),
        (Plan { path: "no slash".into(), ..plan.clone() }, "no slash"),
        (Plan { headers: vec![("a".into(), "secret\r\nb: c".into())], ..plan.clone() }, "\"a\""),
        (Plan { interval_s: 5.0, ..plan.clone() }, "5 s"),
    ] {
        let said = wrong.check().unwrap_err().to_string();
        assert!(said.contains(named) && !said.contains("secret"), "{said}");
    }
}
