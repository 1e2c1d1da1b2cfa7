//! Workers that start, fail and are replaced.

use crate::support::{LONG, Running, call, fake_worker, target};
use jitney_core::tables::outcome::Outcome;
use jitney_server::base::fatal::CHANGED;
use jitney_server::link::frame::header::small_frame;
use jitney_server::link::frame::kind::Kind;
use jitney_server::link::front::worker_event::WorkerEvent;
use jitney_server::workers::settings::Target;
use jitney_server::workers::supervisor::state::Stop;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

#[tokio::test]
async fn a_scout_becomes_the_first_replica_if_its_share_of_the_cores_fits() {
    let running = Running::start(vec![target("a", &["serve"], json!({}))]);
    running.ready().await;
    assert_eq!(running.call("a").await, 0);
    running.stopped(Stop::InOrder).await;
}

#[tokio::test]
async fn a_scout_with_another_share_is_replaced_and_counts_as_no_loss() {
    let running = Running::start(vec![target("a", &["serve"], json!({"replicas": 2, "min_ready_replicas": 2}))]);
    running.ready().await;
    assert!(running.call("a").await > 0);
    assert_eq!((running.lost("a", "died"), running.lost("a", "load_failed")), (0, 0));
    running.stopped(Stop::InOrder).await;
}

#[tokio::test]
async fn as_many_workers_as_are_expected_import_at_the_same_time_and_become_the_replicas() {
    let one = target("a", &["serve"], json!({"replicas": 2, "min_ready_replicas": 2}));
    let running = Running::start(vec![Target { workers: 2, ..one }]);
    running.ready().await;
    let calls = (0..16).map(|_| running.call("a"));
    let answered: BTreeSet<u32> = futures_util::future::join_all(calls).await.into_iter().collect();
    assert!(answered.is_subset(&[0, 1].into()), "no further worker was started: {answered:?}");
    assert_eq!((running.lost("a", "died"), running.lost("a", "load_failed")), (0, 0));
    running.stopped(Stop::InOrder).await;
}

#[tokio::test]
async fn workers_that_are_too_many_end_and_missing_ones_are_started() {
    for (workers, replicas) in [(3, 2), (2, 3)] {
        let one = target("a", &["serve"], json!({"replicas": replicas, "min_ready_replicas": replicas}));
        // With one core each has one, whatever their number.
        let running = Running::with(vec![Target { workers, ..one }], &fake_worker(), 1);
        running.ready().await;
        assert!(running.call("a").await < 3);
        assert_eq!((running.lost("a", "died"), running.lost("a", "load_failed")), (0, 0));
        running.stopped(Stop::InOrder).await;
    }
}

#[tokio::test]
async fn targets_may_be_imported_in_any_order() {
    let targets = ["a", "b", "c"].map(|name| target(name, &["serve"], json!({})));
    // Three scouts share six cores as three replicas do.
    let running = Running::with(targets.into(), &fake_worker(), 6);
    running.ready().await;
    for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(running.call(name).await, number as u32);
    }
    running.stopped(Stop::InOrder).await;
}

#[tokio::test]
async fn a_first_load_that_fails_says_why() {
    let start = |does| Running::start(vec![target("a", &[does], json!({}))]);
    let fatal = start("fail").fatal().await;
    assert!(fatal.text.ends_with("cannot be loaded (load_failed): importing failed: no module named x"), "{fatal:?}");
    for (does, code) in [("die after the manifest", 4), ("die while loading", 3)] {
        let fatal = start(does).fatal().await;
        assert!(fatal.text.contains("the worker ended: exit status: "), "{fatal:?}");
        assert!(fatal.text.ends_with(&code.to_string()), "{fatal:?}");
    }
    let running = Running::with(vec![target("a", &["serve"], json!({}))], "no/such/interpreter", 4);
    let fatal = running.fatal().await;
    assert!(fatal.text.contains("no/such/interpreter cannot be started: "), "{fatal:?}");
    assert_eq!(fatal.code, 1);
}

#[tokio::test]
async fn a_load_that_takes_longer_than_it_may_is_ended() {
    // Of the worker that imported the target too.
    let begin = Instant::now();
    let fatal = Running::start(vec![target("a", &["load without end"], json!({"load_timeout_s": 0.5}))]).fatal().await;
    assert!(fatal.text.contains("(load_timeout): it did not load within load_timeout_s = 0.5;"), "{fatal:?}");
    assert!(begin.elapsed().as_secs_f64() >= 0.5);
}

#[tokio::test]
async fn a_worker_that_dies_is_replaced_and_lost_once() {
    let does = &["die after an answer", "die while loading", "say nothing", "serve"];
    let running = Running::start(vec![target("a", does, json!({"load_timeout_s": 1.0}))]);
    running.ready().await;
    assert_eq!(running.call("a").await, 0);
    running.until("lost", |state| !state.readiness().ready).await;
    running.ready().await;
    assert_eq!(running.call("a").await, 3);
    assert_eq!((running.lost("a", "died"), running.lost("a", "load_failed")), (1, 2));
    running.stopped(Stop::InOrder).await;
}

#[tokio::test]
async fn a_stop_while_loading_does_not_wait_for_the_load() {
    for does in ["load without end", "say nothing"] {
        let running = Running::start(vec![target("a", &[does], json!({}))]);
        running.until("started", |_| true).await;
        if does == "load without end" {
            running.until("imported", |state| state.catalogue().is_some()).await;
        }
        let begin = Instant::now();
        running.stopped(Stop::InOrder).await;
        assert!(begin.elapsed().as_secs_f64() < 4.0, "{does}");
    }
}

#[tokio::test]
async fn a_stop_at_once_does_not_wait_for_a_batch() {
    let running = Running::start(vec![target("a", &["never answer"], json!({}))]);
    running.ready().await;
    let deployment = running.deployment("a");
    let stuck = tokio::spawn(async move { deployment.call(call()).await });
    running
        .until("running", |state| state.telemetry.gauge(jitney_core::tables::metrics::RUNNING_ITEMS, &["a"]).get() == 1)
        .await;
    let begin = Instant::now();
    running.stopped(Stop::AtOnce).await;
    assert!(begin.elapsed().as_secs_f64() < 4.0);
    let answer = tokio::time::timeout(LONG, stuck).await.unwrap().unwrap();
    assert_eq!(answer.result.unwrap_err().outcome, Outcome::Draining);
}

#[tokio::test]
async fn a_stranger_with_the_wrong_token_is_turned_away() {
    let running = Running::start(vec![target("a", &["serve"], json!({}))]);
    running.ready().await;
    for token in ["", "0123456789abcdef0123456789abcdef"] {
        let mut stranger = UnixStream::connect(running.directory.path().join("workers")).await.unwrap();
        let hello = json!({"version": "1", "token": token, "host": "h", "devices": []}).to_string();
        stranger.write_all(&small_frame(Kind::Hello, hello.as_bytes()).concat()).await.unwrap();
        let end = tokio::time::timeout(LONG, stranger.read(&mut [0; 16])).await.expect("an end").unwrap();
        assert_eq!(end, 0);
    }
    assert_eq!(running.call("a").await, 0);
    running.stopped(Stop::InOrder).await;
}

#[tokio::test]
async fn shutdown_keeps_its_reason() {
    let running = Running::start(vec![target("a", &["die after an answer", "serve"], json!({}))]);
    running.ready().await;
    let reasons = vec!["the server is shutting down".to_owned()];
    let leaving = jitney_server::engine::readiness::Readiness { reasons, draining: true, ..Default::default() };
    running.state.set_readiness(leaving.clone());
    assert_eq!(running.call("a").await, 0);
    // A worker that is replaced during the drain does not change the reported result.
    assert_eq!(running.call("a").await, 1);
    assert_eq!(*running.state.readiness(), leaving);
    running.stopped(Stop::InOrder).await;
}

#[tokio::test]
async fn a_batch_of_one_that_hangs_costs_its_worker_and_fails() {
    let does = &["never answer", "serve"];
    let running = Running::start(vec![target("a", does, json!({"batch_timeout_s": 0.3}))]);
    running.ready().await;
    let answer = tokio::time::timeout(LONG, running.deployment("a").call(call())).await.unwrap();
    assert_eq!(answer.result.unwrap_err().outcome, Outcome::WorkerLost, "alone it would hang again");
    assert_eq!(running.call("a").await, 1, "another worker takes its place");
    assert_eq!((running.lost("a", "hung"), running.lost("a", "died")), (1, 0));
    running.ready().await;
    running.stopped(Stop::InOrder).await;
}

#[tokio::test]
async fn workers_that_only_die_close_the_door_until_one_lives() {
    // The first is ready, so that the server does not give up; four deaths without an answer make a crash loop.
    let does = &["die before an answer", "die while loading", "die while loading", "die while loading", "serve"];
    let running = Running::start(vec![target("a", does, json!({}))]);
    running.ready().await;
    let deployment = running.deployment("a");
    // The item had started when its worker died: it waits for a worker to run on alone, until there is no hope.
    let answer = tokio::time::timeout(LONG, deployment.call(call())).await.unwrap();
    assert_eq!(answer.result.unwrap_err().outcome, Outcome::CrashLooping);
    running.ready().await;
    assert_eq!(running.call("a").await, 4);
    assert_eq!((running.lost("a", "died"), running.lost("a", "load_failed")), (1, 3));
    running.stopped(Stop::InOrder).await;
}

#[tokio::test]
async fn a_worker_of_a_deployment_that_is_no_longer_the_same_is_refused() {
    let running = Running::start(vec![target("a", &["die after an answer", "say something else", "serve"], json!({}))]);
    running.ready().await;
    assert_eq!(running.call("a").await, 0);
    assert_eq!(running.call("a").await, 2, "the one between has other inputs than its clients know");
    assert_eq!(running.lost("a", "load_failed"), 1);
    running.stopped(Stop::InOrder).await;
}

#[tokio::test]
async fn when_files_change_workers_end_in_order_and_others_take_their_places() {
    let targets = vec![target("a", &["serve"], json!({"replicas": 2, "min_ready_replicas": 2}))];
    let running = Running::renewing(targets);
    running.ready().await;
    let before = running.call("a").await;
    for round in 1..=6 {
        running.reports.send(WorkerEvent::FilesChanged).unwrap();
        running.until("renewed", |_| running.lost("a", "renewed") == 2 * round).await;
        running.ready().await;
        assert!(running.call("a").await > before);
    }
    assert_eq!((running.lost("a", "died"), running.lost("a", "load_failed")), (0, 0));
    running.stopped(Stop::InOrder).await;
}

#[tokio::test]
async fn a_server_that_is_worked_on_ends_to_be_started_again_when_its_deployments_change() {
    let running = Running::renewing(vec![target("a", &["serve", "say something else"], json!({}))]);
    running.ready().await;
    running.reports.send(WorkerEvent::FilesChanged).unwrap();
    let fatal = running.fatal().await;
    assert_eq!((fatal.code, &*fatal.text), (CHANGED, "a: input changed; starting again"));
}
