//! Answers that come in parts.

use crate::support::{Rig, Worker, batch_end, call, entry, text, texts};
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::tables::metrics;
use jitney_core::tables::outcome::Outcome;
use jitney_server::engine::deployment::Inbound;
use jitney_server::engine::reply;
use jitney_server::engine::reply::{LATE_BYTES, PAUSE_BYTES, ReplyEvent, ReplyReceiver};
use jitney_server::link::batch_frame::ReceivedBatch;
use jitney_server::link::results_frame::ResultsWriter;
use std::time::Duration;

/// Bytes of a part of which few fill a reply.
const LARGE: usize = 32 << 10;

fn submit(rig: &Rig, text: &str) -> ReplyReceiver {
    let (reply, answer) = reply::channel();
    rig.inbound.send(Inbound::Submit(Box::new(call(text)), reply)).unwrap();
    answer
}

async fn part(answer: &mut ReplyReceiver) -> String {
    let ReplyEvent::Part(values) = answer.next().await else { panic!("a part comes next") };
    String::from_utf8(values[0].data.to_vec()).unwrap()
}

/// A worker that has sent the first part of an item, which has reached its caller.
async fn after_one_part() -> (Rig, Worker, ReceivedBatch, ReplyReceiver) {
    let mut rig = Rig::running(|_| {});
    let mut worker = rig.worker().await;
    rig.settle().await;
    let mut answer = submit(&rig, "a");
    let batch = worker.batch().await;
    worker.write(&entry(batch.id, batch.items[0].id, 0, "one", false)).await;
    assert_eq!(part(&mut answer).await, "one");
    (rig, worker, batch, answer)
}

async fn failure(mut answer: ReplyReceiver) -> (Outcome, String) {
    loop {
        if let ReplyEvent::End(answer) = answer.next().await {
            let failure = answer.result.unwrap_err();
            return (failure.outcome, failure.detail);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn parts_reach_the_caller_as_they_come_and_the_item_ends_once() {
    let mut rig = Rig::running(|_| {});
    let mut worker = rig.worker().await;
    rig.settle().await;
    let mut answer = submit(&rig, "a");
    let batch = worker.batch().await;
    let (batch, id) = (batch.id, batch.items[0].id);
    for (sequence, text) in ["one", "two"].into_iter().enumerate() {
        worker.write(&entry(batch, id, sequence as u32, text, false)).await;
        assert_eq!(part(&mut answer).await, text);
    }
    worker.write(&entry(batch, id, 2, "last", true)).await;
    let ReplyEvent::End(end) = answer.next().await else { panic!("the end comes next") };
    assert_eq!(text(&end), "last");
    // What comes after the end is dropped.
    worker.write(&entry(batch, id, 3, "late", false)).await;
    worker.write(&batch_end(batch)).await;
    rig.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_missing_or_comes_twice_fails_its_item() {
    for sequence in [0, 2] {
        let (_rig, mut worker, batch, answer) = after_one_part().await;
        worker.write(&entry(batch.id, batch.items[0].id, sequence, "two", true)).await;
        let (outcome, detail) = failure(answer).await;
        assert_eq!(outcome, Outcome::Internal);
        assert!(detail.contains(&format!("result {sequence} of this item instead of result 1")), "{detail}");
    }
}

/// A worker has sent so much of an item that its caller, which does not read, makes it pause; and how many parts that were.
async fn paused() -> (Rig, Worker, ReceivedBatch, ReplyReceiver, u32) {
    let mut rig = Rig::running(|_| {});
    let mut worker = rig.worker().await;
    rig.settle().await;
    let answer = submit(&rig, "a");
    let batch = worker.batch().await;
    let large = "x".repeat(LARGE);
    let parts = (PAUSE_BYTES / LARGE) as u32;
    for sequence in 0..parts {
        worker.write(&entry(batch.id, batch.items[0].id, sequence, &large, false)).await;
    }
    assert_eq!(worker.pause().await, (batch.items[0].id, true));
    assert_eq!(rig.gauge(metrics::PAUSED_ITEMS), 1);
    (rig, worker, batch, answer, parts)
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_read_pauses_its_item_until_it_does() {
    let (rig, mut worker, batch, mut answer, parts) = paused().await;
    let mut read = 0;
    while !answer.take_resume() {
        read += part(&mut answer).await.len();
    }
    rig.inbound.send(Inbound::Resume(batch.items[0].id)).unwrap();
    assert_eq!(worker.pause().await, (batch.items[0].id, false));
    worker.write(&entry(batch.id, batch.items[0].id, parts, "last", true)).await;
    worker.write(&batch_end(batch.id)).await;
    while let ReplyEvent::Part(values) = answer.next().await {
        read += values[0].data.len();
    }
    assert_eq!(read, parts as usize * LARGE, "every part");
    assert_eq!(rig.gauge(metrics::PAUSED_ITEMS), 0);
    rig.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_goes_on_with_a_paused_item_ends_it() {
    let (mut rig, mut worker, batch, answer, parts) = paused().await;
    let large = "x".repeat(LARGE);
    for sequence in parts..=(LATE_BYTES / LARGE) as u32 {
        worker.write(&entry(batch.id, batch.items[0].id, sequence, &large, false)).await;
    }
    rig.settle().await;
    assert_eq!(failure(answer).await.0, Outcome::TooSlow);
    assert_eq!(worker.cancelled().await, batch.items[0].id, "the worker does not compute it to its end");
    assert_eq!(rig.gauge(metrics::PAUSED_ITEMS), 0);
    // It has the item until it says otherwise: if the worker dies now, the item may be why.
    rig.lose(worker, Loss::Crashed).await;
    let mut other = rig.worker().await;
    let (equal, company) = (submit(&rig, "a"), submit(&rig, "b"));
    let alone = other.batch().await;
    assert_eq!(texts(&alone), [(alone.items[0].id, "a".into())], "an equal input runs alone");
    drop((equal, company));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_its_item_is_paused_cancels_it() {
    let (mut rig, mut worker, batch, answer, _) = paused().await;
    drop(answer);
    rig.inbound.send(Inbound::Cancel(batch.items[0].id)).unwrap();
    assert_eq!(worker.cancelled().await, batch.items[0].id);
    assert_eq!(rig.gauge(metrics::PAUSED_ITEMS), 0);
    rig.inbound.send(Inbound::Resume(batch.items[0].id)).unwrap();
    rig.lose(worker, Loss::Crashed).await;
    rig.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn an_item_that_was_cancelled_and_left_out_after_a_part_is_no_longer_with_its_worker() {
    let (mut rig, mut worker, batch, _answer) = after_one_part().await;
    let id = batch.items[0].id;
    rig.inbound.send(Inbound::Cancel(id)).unwrap();
    assert_eq!(worker.cancelled().await, id);
    let mut table = ResultsWriter::new(batch.id, Duration::ZERO, 1);
    table.left_out(id, 1);
    worker.write(&table.finish()).await;
    rig.settle().await;
    rig.lose(worker, Loss::Crashed).await;
    let mut other = rig.worker().await;
    let (equal, company) = (submit(&rig, "a"), submit(&rig, "b"));
    let first = other.batch().await;
    assert_eq!(rig.batches(CloseReason::Suspect), 0, "the item was done with when the worker died");
    drop((first, equal, company));
}

#[tokio::test(start_paused = true)]
async fn a_worker_may_leave_an_item_out_after_a_part() {
    let (_rig, mut worker, batch, answer) = after_one_part().await;
    let mut table = ResultsWriter::new(batch.id, Duration::ZERO, 1);
    table.left_out(batch.items[0].id, 1);
    worker.write(&table.finish()).await;
    assert_eq!(failure(answer).await.0, Outcome::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn an_item_with_parts_does_not_run_again() {
    let (mut rig, worker, _, begun) = after_one_part().await;
    rig.lose(worker, Loss::Killed).await;
    assert_eq!(failure(begun).await.0, Outcome::WorkerLost);
    let mut other = rig.worker().await;
    let later = rig.call("later");
    let batch = other.batch().await;
    other.answer(&batch).await;
    assert_eq!(text(&later.await.unwrap()), "later!");
    rig.assert_empty().await;
}
