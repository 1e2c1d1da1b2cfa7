//! Workers that are lost at every stage of a batch.

use crate::support::{Rig, Worker, outcome, right, some_results, text, texts};
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::tables::metrics::{QUEUED_ITEMS, READY_REPLICAS};
use jitney_core::tables::outcome::Outcome;
use jitney_server::link::batch_frame::ReceivedBatch;
use jitney_server::values::answer::Answer;
use std::time::Duration;
use tokio::task::JoinHandle;

const BODIES: [&str; 4] = ["one", "two", "three", "four"];

/// A worker that holds these four calls in one batch.
async fn loaded(rig: &mut Rig) -> (Worker, ReceivedBatch, Vec<JoinHandle<Answer>>) {
    let mut worker = rig.worker().await;
    rig.settle().await;
    let first = rig.call("first");
    let batch = worker.batch().await;
    let calls = BODIES.map(|body| rig.call(body)).into();
    rig.settle().await;
    worker.answer(&batch).await;
    first.await.unwrap();
    let batch = worker.batch().await;
    assert_eq!(batch.items.len(), BODIES.len());
    (worker, batch, calls)
}

/// Answers until all calls are answered; the size of each batch.
async fn rescue(rig: &mut Rig, calls: Vec<JoinHandle<Answer>>) -> Vec<usize> {
    let mut worker = rig.worker().await;
    let (mut sizes, mut left) = (Vec::new(), calls.len());
    while left > 0 {
        let batch = worker.batch().await;
        worker.started(&batch).await;
        worker.answer(&batch).await;
        sizes.push(batch.items.len());
        left -= batch.items.len();
    }
    for (call, body) in calls.into_iter().zip(BODIES) {
        assert_eq!(text(&call.await.unwrap()), right(body));
    }
    rig.assert_empty().await;
    assert_eq!(rig.ended(Outcome::Ok), 1 + BODIES.len() as u64);
    sizes
}

#[tokio::test(start_paused = true)]
async fn what_had_not_started_goes_elsewhere_as_it_was() {
    // Only where items may not run again do workers say that a batch has started, and is it believed that one has not.
    let mut rig = Rig::running(|options| options.retry = false);
    let (worker, _, calls) = loaded(&mut rig).await;
    rig.lose(worker, Loss::Crashed).await;
    assert_eq!(rescue(&mut rig, calls).await, [4]);
    assert_eq!(rig.batches(CloseReason::Suspect), 0);
}

#[tokio::test(start_paused = true)]
async fn a_large_input_that_no_client_waits_for_is_known_after_the_loss() {
    let mut rig = Rig::running(|_| {});
    let mut worker = rig.worker().await;
    rig.settle().await;
    // So large that it is hashed on another thread.
    let large = "large".repeat(1 << 18);
    let gone = rig.call(&large);
    worker.batch().await;
    gone.abort();
    worker.cancelled().await;
    let waiting = rig.call(&large);
    rig.lose(worker, Loss::Crashed).await;
    let mut other = rig.worker().await;
    // The paused clock does not advance while the thread runs, so the next call comes after the loss.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let later = rig.call(&large);
    for call in [waiting, later] {
        let batch = other.batch().await;
        assert_eq!(batch.items.len(), 1, "each equal input runs alone");
        other.answer(&batch).await;
        assert_eq!(text(&call.await.unwrap()), right(&large));
    }
    assert!(rig.batches(CloseReason::Suspect) >= 1);
    rig.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_ahead_goes_elsewhere_and_what_ran_runs_alone() {
    let mut rig = Rig::running(|options| options.max_batch_size = 4);
    let (worker, _, calls) = loaded(&mut rig).await;
    let ahead = BODIES.map(|body| rig.call(body));
    rig.settle().await;
    assert_eq!(rig.batches(CloseReason::Full), 2);
    rig.lose(worker, Loss::Crashed).await;
    let mut sizes = Vec::new();
    let mut worker = rig.worker().await;
    while sizes.iter().sum::<usize>() < 2 * BODIES.len() {
        let batch = worker.batch().await;
        worker.answer(&batch).await;
        sizes.push(batch.items.len());
    }
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 1, 1, 1, 4]);
    for (call, body) in calls.into_iter().chain(ahead).zip(BODIES.into_iter().cycle()) {
        assert_eq!(text(&call.await.unwrap()), right(body));
    }
    rig.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn what_had_started_runs_again_alone() {
    let mut rig = Rig::running(|_| {});
    let (mut worker, batch, calls) = loaded(&mut rig).await;
    worker.started(&batch).await;
    rig.lose(worker, Loss::Crashed).await;
    assert_eq!(rescue(&mut rig, calls).await, [1; 4]);
    assert_eq!(rig.batches(CloseReason::Suspect), 4);
}

#[tokio::test(start_paused = true)]
async fn a_results_frame_that_breaks_off_anywhere_counts_for_nothing() {
    let mut rig = Rig::running(|_| {});
    let (worker, batch, _) = loaded(&mut rig).await;
    let whole = whole_results(&batch).len();
    drop(worker);
    for cut in 0..whole {
        let mut rig = Rig::running(|_| {});
        let (mut worker, batch, calls) = loaded(&mut rig).await;
        worker.started(&batch).await;
        worker.write(&whole_results(&batch)[..cut]).await;
        rig.lose(worker, Loss::Killed).await;
        assert_eq!(rescue(&mut rig, calls).await, [1; 4], "cut at {cut}");
    }
}

/// The results of all items; the batch has not ended.
fn whole_results(batch: &ReceivedBatch) -> Vec<u8> {
    let said: Vec<_> = texts(batch).into_iter().map(|(id, text)| (id, Some(right(&text)))).collect();
    some_results(batch.id, &said)
}

#[tokio::test(start_paused = true)]
async fn results_that_arrive_before_the_link_breaks_count() {
    let mut rig = Rig::running(|_| {});
    let (mut worker, batch, calls) = loaded(&mut rig).await;
    worker.started(&batch).await;
    worker.write(&whole_results(&batch)).await;
    rig.lose(worker, Loss::Crashed).await;
    for (call, body) in calls.into_iter().zip(BODIES) {
        assert_eq!(text(&call.await.unwrap()), right(body));
    }
    rig.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn who_kills_alone_is_answered_once_and_its_like_is_refused() {
    let mut rig = Rig::running(|_| {});
    let (mut worker, batch, mut calls) = loaded(&mut rig).await;
    worker.started(&batch).await;
    rig.lose(worker, Loss::Crashed).await;
    let mut worker = rig.worker().await;
    let alone = worker.batch().await;
    assert_eq!(texts(&alone)[0].1, BODIES[0]);
    worker.started(&alone).await;
    rig.lose(worker, Loss::Crashed).await;
    assert_eq!(outcome(&calls.remove(0).await.unwrap()), Outcome::WorkerLost);
    assert_eq!(outcome(&rig.call(BODIES[0]).await.unwrap()), Outcome::Quarantined);
    let mut worker = rig.worker().await;
    for (call, body) in calls.into_iter().zip(&BODIES[1..]) {
        let batch = worker.batch().await;
        worker.started(&batch).await;
        worker.answer(&batch).await;
        assert_eq!(text(&call.await.unwrap()), right(body));
    }
    rig.assert_empty().await;
    let ends = [Outcome::WorkerLost, Outcome::Quarantined, Outcome::Ok].map(|outcome| rig.ended(outcome));
    assert_eq!(ends, [1, 1, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_time_in_which_the_engine_itself_did_not_run_is_no_hang() {
    let mut rig = Rig::running(|options| (options.batch_timeout_s, options.request_timeout_s) = (30.0, 600.0));
    let (mut worker, batch, calls) = loaded(&mut rig).await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    // All at once, as for a process that was frozen; the batch had five seconds left, and has them still.
    tokio::time::advance(Duration::from_secs(40)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(rig.gauge(READY_REPLICAS), 1);
    worker.answer(&batch).await;
    for (call, body) in calls.into_iter().zip(BODIES) {
        assert_eq!(text(&call.await.unwrap()), right(body));
    }
    let hangs = rig.call("hangs");
    worker.batch().await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(rig.gauge(READY_REPLICAS), 0);
    hangs.abort();
}

#[tokio::test(start_paused = true)]
async fn an_item_that_hangs_alone_fails_at_its_time_out_and_costs_one_worker() {
    let mut rig = Rig::running(|options| (options.batch_timeout_s, options.request_timeout_s) = (30.0, 600.0));
    let mut worker = rig.worker().await;
    let hangs = rig.call("hangs");
    worker.batch().await;
    let failure = hangs.await.unwrap().result.unwrap_err();
    assert_eq!(failure.outcome, Outcome::WorkerLost);
    let detail = "d computed this input alone for longer than batch_timeout_s = 30, so its worker is replaced; the input is \
                  not tried again";
    assert_eq!(failure.detail, detail);
    rig.lose(worker, Loss::Crashed).await;
    rig.assert_empty().await;
    let mut other = rig.worker().await;
    let later = rig.call("later");
    let batch = other.batch().await;
    assert_eq!(texts(&batch)[0].1, "later", "the input that hung is not computed again");
    other.answer(&batch).await;
    assert_eq!(text(&later.await.unwrap()), right("later"));
}

#[tokio::test(start_paused = true)]
async fn without_retry_what_had_started_fails() {
    let mut rig = Rig::running(|options| options.retry = false);
    let (mut worker, batch, calls) = loaded(&mut rig).await;
    worker.started(&batch).await;
    rig.lose(worker, Loss::Killed).await;
    for call in calls {
        assert_eq!(outcome(&call.await.unwrap()), Outcome::WorkerLost);
    }
    rig.assert_empty().await;
}

/// Otherwise its connection could fill its place once more.
#[tokio::test(start_paused = true)]
async fn an_item_that_waits_again_counts_again() {
    let mut rig = Rig::running(|_| {});
    let waiting = rig.deployment.waiting.clone();
    let (mut worker, batch, calls) = loaded(&mut rig).await;
    worker.started(&batch).await;
    rig.settle().await;
    assert_eq!(waiting.amount(), 0, "the worker has them");
    rig.lose(worker, Loss::Killed).await;
    rig.settle().await;
    assert_eq!((waiting.amount(), rig.gauge(QUEUED_ITEMS)), (4, 4));
    rescue(&mut rig, calls).await;
    assert_eq!(waiting.amount(), 0);
}
