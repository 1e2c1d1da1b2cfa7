//! Every call gets its own answer, once, and the meters say what happened.

use crate::support::{Rig, Said, Worker, batch_end, call, outcome, right, some_results, text, texts};
use jitney_core::policy::batch_policy::CloseReason;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{BatchId, ItemId};
use jitney_core::tables::metrics;
use jitney_core::tables::outcome::Outcome;
use jitney_server::engine::deployment::Inbound;
use jitney_server::engine::reply;
use jitney_server::engine::reply::ReplyReceiver;
use jitney_server::link::front::worker_event::WorkerEvent;
use jitney_server::values::call::Call;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A worker that answers in reverse order, twice, for items of others too, and for batches that never were.
async fn confused(mut worker: Worker, batches: Arc<AtomicU64>) {
    loop {
        let batch = worker.batch().await;
        batches.fetch_add(1, Ordering::Relaxed);
        worker.started(&batch).await;
        tokio::time::sleep(Duration::from_millis(batch.id.0 % 7)).await;
        let wrong = |id: ItemId| (id, Some("wrong".to_owned()));
        let mut said: Vec<Said> = Vec::new();
        for (id, text) in texts(&batch).into_iter().rev() {
            said.extend([(id, Some(right(&text))), wrong(id)]);
        }
        let is_foreign = |id: &ItemId| batch.items.iter().all(|item| item.id != *id);
        let neighbours = batch.items.iter().flat_map(|item| [ItemId(item.id.0 + 1), ItemId(item.id.0 - 1)]);
        said.extend(neighbours.filter(is_foreign).map(wrong));
        worker.finish(BatchId(batch.id.0 + 1_000_000), &said[1..]).await;
        worker.finish(batch.id, &said).await;
        // Late, and a second time.
        worker.finish(batch.id, &said[1..]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_get_their_own_answers() {
    let mut rig = Rig::running(|options| options.max_batch_size = 8);
    let batches = Arc::new(AtomicU64::new(0));
    for _ in 0..3 {
        tokio::spawn(confused(rig.worker().await, batches.clone()));
    }
    rig.settle().await;
    let calls: Vec<_> = (0..500).map(|n| rig.call(&format!("body {n}"))).collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(text(&call.await.unwrap()), right(&format!("body {n}")));
    }
    rig.assert_empty().await;
    assert_eq!(rig.ended(Outcome::Ok), 500);
    assert_eq!(rig.gauge(metrics::READY_REPLICAS), 3);
    let launched: u64 = CloseReason::ALL.into_iter().map(|reason| rig.batches(reason)).sum();
    assert_eq!(launched, batches.load(Ordering::Relaxed));
    assert!(rig.batches(CloseReason::Full) > 0);
}

#[tokio::test(start_paused = true)]
async fn inputs_are_sent_again_but_for_those_that_nobody_waits_for() {
    let mut rig = Rig::running(|_| {});
    let mut worker = rig.worker().await;
    rig.settle().await;
    let first = rig.call("first");
    let batch = worker.batch().await;
    worker.answer(&batch).await;
    first.await.unwrap();
    let calls = ["a", "b", "c"].map(|text| rig.call(text));
    rig.settle().await;
    let batch = worker.batch().await;
    let ids: Vec<ItemId> = batch.items.iter().map(|item| item.id).collect();
    calls[1].abort();
    assert_eq!(worker.cancelled().await, ids[1]);
    worker.ask_inputs(batch.id, &[ids[0], ids[1], ItemId(u64::MAX)]).await;
    assert_eq!(worker.inputs().await, [(ids[0], "a".to_owned())]);
    // Also if none is left: the worker waits for it.
    worker.ask_inputs(batch.id, &[ids[1]]).await;
    assert_eq!(worker.inputs().await, []);
    worker.answer(&batch).await;
    rig.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_is_cancelled_where_its_item_is() {
    let mut rig = Rig::running(|_| {});
    let mut worker = rig.worker().await;
    rig.settle().await;
    let first = rig.call("first");
    let batch = worker.batch().await;
    let second = rig.call("second");
    rig.settle().await;
    second.abort();
    first.abort();
    // The queued one is never heard of; the one with the worker is cancelled there.
    assert_eq!(worker.cancelled().await, batch.items[0].id);
    let third = rig.call("third");
    rig.settle().await;
    worker.answer(&batch).await;
    let batch = worker.batch().await;
    assert_eq!(texts(&batch)[0].1, "third");
    assert_eq!(batch.items.len(), 1);
    worker.answer(&batch).await;
    assert_eq!(text(&third.await.unwrap()), "third!");
    assert_eq!((rig.ended(Outcome::Cancelled), rig.ended(Outcome::Ok)), (2, 1));
    rig.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_kept_although_the_worker_never_answers() {
    let mut rig = Rig::running(|options| options.batch_timeout_s = 30.0);
    let mut worker = rig.worker().await;
    rig.settle().await;
    let begin = Instant::now();
    let running = rig.call_within("with the worker", Some(Duration::from_secs(2)));
    let batch = worker.batch().await;
    let queued = rig.call_within("queued", Some(Duration::from_secs(5)));
    for (call, seconds, stage) in [(running, 2, "with a worker"), (queued, 5, "waiting in the queue")] {
        let failure = call.await.unwrap().result.unwrap_err();
        assert_eq!(failure.outcome, Outcome::DeadlineExceeded);
        assert!(failure.detail.contains(stage), "{}", failure.detail);
        let (due, after) = (Duration::from_secs(seconds), begin.elapsed());
        // Timers have a grain of a millisecond.
        assert!((due..=due + Duration::from_millis(2)).contains(&after), "after {after:?}");
    }
    assert_eq!(worker.cancelled().await, batch.items[0].id);
    // The worker still has the batch, and a batch must end.
    rig.report(|report| matches!(report, WorkerEvent::Hung(replica, _) if *replica == worker.replica)).await;
    assert_eq!(begin.elapsed().as_secs(), 30);
    rig.assert_empty().await;
    assert_eq!(rig.gauge(metrics::READY_REPLICAS), 0);
}

#[tokio::test(start_paused = true)]
async fn an_engine_with_nothing_to_do_rests() {
    let mut rig = Rig::new(|_| {});
    let mut worker = rig.worker().await;
    let polls = Arc::new(AtomicU64::new(0));
    let (mut engine, counted) = (Box::pin(rig.engine.take().unwrap().run()), polls.clone());
    tokio::spawn(std::future::poll_fn(move |context| {
        counted.fetch_add(1, Ordering::Relaxed);
        engine.as_mut().poll(context)
    }));
    rig.settle().await;
    let call = rig.call("once");
    let batch = worker.batch().await;
    worker.answer(&batch).await;
    call.await.unwrap();
    // The deadline that the answered call had passes, and its timer rings.
    tokio::time::advance(Duration::from_secs(61)).await;
    rig.settle().await;
    let before = polls.load(Ordering::Relaxed);
    rig.settle().await;
    assert_eq!(polls.load(Ordering::Relaxed), before);
}

#[tokio::test(start_paused = true)]
async fn items_that_a_result_misses_fail_and_left_out_ones_were_too_late() {
    let mut rig = Rig::running(|_| {});
    let blocked = rig.worker().await;
    let mut worker = blocked;
    rig.settle().await;
    let first = rig.call("holds the worker");
    let batch = worker.batch().await;
    let calls = ["missed", "answered", "left out"].map(|text| rig.call(text));
    rig.settle().await;
    worker.answer(&batch).await;
    first.await.unwrap();
    let batch = worker.batch().await;
    let ids: Vec<ItemId> = batch.items.iter().map(|item| item.id).collect();
    worker.finish(batch.id, &[(ids[2], None), (ids[1], Some("answered!".into()))]).await;
    let mut outcomes = Vec::new();
    for call in calls {
        outcomes.push(outcome(&call.await.unwrap()));
    }
    assert_eq!(outcomes, [Outcome::Internal, Outcome::Ok, Outcome::DeadlineExceeded]);
    for (outcome, count) in [(Outcome::Internal, 1), (Outcome::Ok, 2), (Outcome::DeadlineExceeded, 1)] {
        assert_eq!(rig.ended(outcome), count);
    }
    rig.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn results_come_in_several_frames_and_the_batch_ends_by_its_own_message() {
    let mut rig = Rig::running(|options| options.max_batch_size = 4);
    let mut worker = rig.worker().await;
    rig.settle().await;
    let first = rig.call("holds the worker");
    let batch = worker.batch().await;
    let [a, b] = ["a", "b"].map(|text| rig.call(text));
    rig.settle().await;
    worker.answer(&batch).await;
    first.await.unwrap();
    let batch = worker.batch().await;
    let ids: Vec<ItemId> = batch.items.iter().map(|item| item.id).collect();
    // In another order than they were sent, each in a separate frame.
    worker.write(&some_results(batch.id, &[(ids[1], Some("b!".into()))])).await;
    assert_eq!(text(&b.await.unwrap()), "b!");
    assert!(!a.is_finished(), "its results have not come");
    worker.write(&some_results(batch.id, &[(ids[0], Some("a!".into()))])).await;
    assert_eq!(text(&a.await.unwrap()), "a!");
    // All are answered, and the worker still has the batch: others wait for its end.
    let later = ["c", "d"].map(|text| rig.call(text));
    rig.settle().await;
    assert_eq!(rig.gauge(metrics::QUEUED_ITEMS), 2);
    worker.write(&batch_end(batch.id)).await;
    let mut answered = 0;
    while answered < later.len() {
        let batch = worker.batch().await;
        answered += batch.items.len();
        worker.answer(&batch).await;
    }
    for call in later {
        assert_eq!(outcome(&call.await.unwrap()), Outcome::Ok);
    }
    rig.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_door_says_why() {
    let mut rig = Rig::running(|_| {});
    let answer = rig.call("early").await.unwrap();
    assert_eq!(outcome(&answer), Outcome::Loading);
    assert!(answer.result.unwrap_err().retry_after.is_some());
    let mut worker = rig.worker().await;
    rig.settle().await;
    let running = rig.call("running");
    let batch = worker.batch().await;
    let waiting = rig.call("waiting");
    rig.settle().await;
    rig.inbound.send(Inbound::CrashLooping).unwrap();
    // No worker will take the waiting items. Running items may still be answered.
    assert_eq!(outcome(&waiting.await.unwrap()), Outcome::CrashLooping);
    assert_eq!(outcome(&rig.call("late").await.unwrap()), Outcome::CrashLooping);
    worker.answer(&batch).await;
    assert_eq!(text(&running.await.unwrap()), "running!");
    rig.inbound.send(Inbound::Drain).unwrap();
    assert_eq!(outcome(&rig.call("last").await.unwrap()), Outcome::Draining);
    rig.assert_empty().await;
    let ends = [Outcome::Loading, Outcome::CrashLooping, Outcome::Draining, Outcome::Ok].map(|o| rig.ended(o));
    assert_eq!(ends, [1, 2, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn callers_of_an_engine_that_ends_are_told() {
    let mut rig = Rig::new(|_| {});
    let engine = tokio::spawn(rig.engine.take().unwrap().run());
    let mut worker = rig.worker().await;
    rig.settle().await;
    let running = rig.call("running");
    worker.batch().await;
    let queued = rig.call("queued");
    rig.settle().await;
    engine.abort();
    for call in [running, queued, rig.call("later")] {
        assert_eq!(outcome(&call.await.unwrap()), Outcome::Draining);
    }
    assert_eq!(outcome(&rig.deployment.call(call("after that")).await), Outcome::Draining);
    assert_eq!(rig.ended(Outcome::Draining), 4);
}

/// A connection's share of the queue counts only items that wait. It does not count items that a worker has.
#[tokio::test(start_paused = true)]
async fn an_item_counts_as_waiting_until_its_batch_is_launched() {
    let mut rig = Rig::running(|_| {});
    let waiting = rig.deployment.waiting.clone();
    let mut worker = rig.worker().await;
    rig.settle().await;
    let running = rig.call("running");
    let batch = worker.batch().await;
    rig.settle().await;
    assert_eq!(waiting.amount(), 0);
    let calls = ["queued", "queued", "leaves"].map(|text| rig.call(text));
    rig.settle().await;
    assert_eq!(waiting.amount(), 3);
    calls[2].abort();
    rig.settle().await;
    assert_eq!(waiting.amount(), 2);
    worker.answer(&batch).await;
    worker.batch().await;
    rig.settle().await;
    assert_eq!(waiting.amount(), 0);
    drop((running, calls));
}

#[tokio::test(start_paused = true)]
async fn a_request_of_many_items_enters_whole_and_each_item_is_on_its_own() {
    let mut rig = Rig::running(|options| options.max_queued_items = 10);
    let mut worker = rig.worker().await;
    rig.settle().await;
    let many = |count: usize| {
        let deployment = rig.deployment.clone();
        tokio::spawn(async move {
            let calls = (0..count).map(|n| call(&n.to_string())).collect();
            let (answers, ticket) = deployment.open_many(calls, &deployment.waiting).await;
            drop(ticket);
            answers.unwrap()
        })
    };
    // Larger than a batch and than the queue: it enters, because the queue is below its bound, and leaves room for others.
    let large = many(30);
    rig.settle().await;
    assert_eq!(
        rig.gauge(metrics::QUEUED_ITEMS),
        0,
        "one batch runs, one waits at the worker, the others are not in yet"
    );
    let other = many(2);
    rig.settle().await;
    assert_eq!(rig.gauge(metrics::QUEUED_ITEMS), 2);
    let mut sizes = vec![];
    for _ in 0..5 {
        let batch = worker.batch().await;
        sizes.push(batch.items.len());
        // The last item of each batch gets no result.
        let said: Vec<Said> = texts(&batch).into_iter().map(|(id, text)| (id, Some(right(&text)))).collect();
        worker.finish(batch.id, &said[..said.len() - 1]).await;
    }
    assert_eq!(sizes, [8, 8, 2, 8, 6]);
    assert_eq!(other.await.unwrap().iter().map(outcome).collect::<Vec<_>>(), [Outcome::Ok, Outcome::Internal]);
    for (n, answer) in large.await.unwrap().iter().enumerate() {
        match outcome(answer) {
            Outcome::Internal => assert!([7, 15, 23, 29].contains(&n), "{n}"),
            _ => assert_eq!(text(answer), right(&n.to_string())),
        }
    }
    assert_eq!(rig.ended(Outcome::Ok), 2, "a request counts once");

    let leaves = many(12);
    let batch = worker.batch().await;
    leaves.abort();
    let gone: Vec<ItemId> = vec![worker.cancelled().await, worker.cancelled().await];
    assert!(gone.iter().all(|id| batch.items.iter().any(|item| item.id == *id)));
    worker.answer(&batch).await;
    assert_eq!(rig.ended(Outcome::Cancelled), 1);
    rig.assert_empty().await;
}

/// Items that somebody else has put into the queue at once.
fn fill(rig: &Rig, count: usize) -> Vec<ReplyReceiver> {
    let (items, replies) = (0..count)
        .map(|_| {
            let (reply, answer) = reply::channel();
            ((Box::new(call("other")), reply), answer)
        })
        .unzip();
    rig.inbound.send(Inbound::SubmitMany { items, continues: false }).unwrap();
    replies
}

#[tokio::test(start_paused = true)]
async fn a_later_piece_of_a_request_waits_for_room_until_the_time_of_the_request_is_over() {
    let timeout = Duration::from_secs(5);
    for has_end in [true, false] {
        let mut rig = Rig::running(|options| options.max_queued_items = 10);
        let mut worker = rig.worker().await;
        rig.settle().await;
        let (deployment, began) = (rig.deployment.clone(), Instant::now());
        let large = tokio::spawn(async move {
            let within = |n: usize| Call { timeout: Some(timeout), ..call(&n.to_string()) };
            deployment.open_many((0..20).map(within).collect(), &deployment.waiting).await.0.unwrap()
        });
        rig.settle().await;
        let others = fill(&rig, 40);
        for _ in 0..2 {
            let batch = worker.batch().await;
            worker.answer(&batch).await;
        }
        rig.settle().await;
        assert_eq!(rig.gauge(metrics::QUEUED_ITEMS), 40 - 8 - 8, "the second piece is not in");
        if has_end {
            // All of the others, then the second piece.
            for size in [8, 8, 8, 8, 8, 4] {
                let batch = worker.batch().await;
                assert_eq!(batch.items.len(), size);
                worker.answer(&batch).await;
            }
        }
        let answers = large.await.unwrap();
        let (first, second) = answers.split_at(16);
        assert!(first.iter().enumerate().all(|(n, answer)| text(answer) == right(&n.to_string())));
        assert_eq!(second.len(), 4);
        if has_end {
            assert!(began.elapsed() < timeout);
            assert!(second.iter().all(|answer| outcome(answer) == Outcome::Ok));
        } else {
            assert!(second.iter().all(|answer| outcome(answer) == Outcome::QueueFull));
            assert!(began.elapsed() >= timeout && began.elapsed() < timeout + Duration::from_secs(1));
        }
        drop(others);
    }
}

/// Polls a call as the event loop of a program does: on a thread that is none of the runtime's.
fn elsewhere<T: Send + 'static>(calling: impl Future<Output = T> + Send + 'static) -> oneshot::Receiver<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        let mut calling = std::pin::pin!(calling);
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            if let Poll::Ready(value) = calling.as_mut().poll(&mut Context::from_waker(&waker)) {
                let _ = tell.send(value);
                return;
            }
            std::thread::park();
        }
    });
    told
}

#[tokio::test]
async fn a_later_piece_waits_for_room_whoever_polls_it() {
    let mut rig = Rig::running(|options| options.max_queued_items = 10);
    let mut worker = rig.worker().await;
    rig.settle().await;
    let deployment = rig.deployment.clone();
    let large = elsewhere(async move {
        let within = |n: usize| Call { timeout: Some(Duration::from_secs(2)), ..call(&n.to_string()) };
        deployment.open_many((0..20).map(within).collect(), &deployment.waiting).await.0.unwrap()
    });
    let first = worker.batch().await;
    let others = fill(&rig, 40);
    worker.answer(&first).await;
    let second = worker.batch().await;
    worker.answer(&second).await;
    let answers = large.await.expect("it was polled to its end");
    assert!(answers[..16].iter().all(|answer| outcome(answer) == Outcome::Ok));
    assert!(answers[16..].iter().all(|answer| outcome(answer) == Outcome::QueueFull));
    drop(others);
}

#[tokio::test(start_paused = true)]
async fn a_request_of_many_items_that_finds_no_room_is_refused_as_a_whole() {
    let mut rig = Rig::running(|options| options.max_queued_items = 10);
    let worker = rig.worker().await;
    rig.settle().await;
    let others = fill(&rig, 8 + 8 + 10);
    let calls = (0..40).map(|n| call(&n.to_string())).collect();
    let (answers, ticket) = rig.deployment.open_many(calls, &rig.deployment.waiting).await;
    drop(ticket);
    rig.settle().await;
    assert_eq!(answers.unwrap_err().outcome, Outcome::QueueFull);
    assert_eq!((rig.gauge(metrics::QUEUED_ITEMS), rig.ended(Outcome::QueueFull)), (10, 1));
    drop((others, worker));
}

#[tokio::test(start_paused = true)]
async fn pieces_of_large_requests_take_turns_and_leave_room_for_others() {
    let mut rig = Rig::running(|_| ());
    let mut worker = rig.worker().await;
    rig.settle().await;
    let large: Vec<_> = (0..6)
        .map(|_| {
            let deployment = rig.deployment.clone();
            tokio::spawn(async move {
                deployment.open_many((0..64).map(|n| call(&n.to_string())).collect(), &deployment.waiting).await.0
            })
        })
        .collect();
    rig.settle().await;
    let inside = |rig: &Rig| rig.gauge(metrics::QUEUED_ITEMS) + rig.gauge(metrics::RUNNING_ITEMS);
    assert_eq!(inside(&rig), 6 * 16, "what decides whether they are admitted");
    let mut most = 0;
    for batch in 0..6 * 64 / 8 {
        // So long that pieces stay small.
        tokio::time::advance(Duration::from_millis(150)).await;
        let next = worker.batch().await;
        worker.answer(&next).await;
        rig.settle().await;
        most = if batch < 12 { most } else { most.max(inside(&rig)) };
    }
    assert!((16..=32).contains(&most), "two pieces at once, not {most} items");
    for answers in large {
        let answers = answers.await.unwrap().unwrap();
        assert!(answers.iter().enumerate().all(|(n, answer)| text(answer) == right(&n.to_string())));
    }
    rig.assert_empty().await;
}

/// The option says two replicas; pieces are for those that work now.
#[tokio::test(start_paused = true)]
async fn a_large_request_has_work_for_every_replica_that_works_now() {
    for (up, expected) in [(1, 16), (2, 32), (3, 48)] {
        let mut rig = Rig::running(|options| options.replicas = 2);
        let mut workers = Vec::new();
        for _ in 0..3 {
            workers.push(rig.worker().await);
        }
        for lost in workers.split_off(up) {
            rig.lose(lost, Loss::Killed).await;
        }
        rig.settle().await;
        assert_eq!(rig.deployment.published.replicas(), up);
        let deployment = rig.deployment.clone();
        let _large = tokio::spawn(async move {
            deployment.open_many((0..64).map(|_| call("x")).collect(), &deployment.waiting).await.0
        });
        rig.settle().await;
        let inside = rig.gauge(metrics::QUEUED_ITEMS) + rig.gauge(metrics::RUNNING_ITEMS);
        assert_eq!(inside, expected, "two batches of eight for each of {up}");
    }
}

/// Others see how many items may wait: the engine lets in as many, and then refuses the next one for its wait.
#[tokio::test(start_paused = true)]
async fn the_engine_says_how_many_items_may_wait() {
    let mut rig = Rig::running(|options| options.max_batch_size = 1);
    let mut worker = rig.worker().await;
    rig.settle().await;
    assert_eq!(rig.deployment.published.most_waiting(), u64::MAX, "nothing was measured");
    for _ in 0..3 {
        let first = rig.call("it takes a second");
        let batch = worker.batch().await;
        tokio::time::advance(Duration::from_secs(1)).await;
        worker.answer(&batch).await;
        first.await.unwrap();
    }
    let running = rig.call("it runs");
    let _batch = worker.batch().await;
    rig.settle().await;
    let most = rig.deployment.published.most_waiting();
    assert!((5..=10).contains(&most), "about ten batches of one item: {most}");
    let inside = rig.deployment.waiting.amount();
    let waiting: Vec<_> = (inside..most).map(|_| rig.call("it waits")).collect();
    rig.settle().await;
    assert!(waiting.iter().all(|call| !call.is_finished()), "{most} may wait");
    assert_eq!(outcome(&rig.call("one too many").await.unwrap()), Outcome::WaitTooLong);
    assert!(rig.deployment.published.most_waiting() < most, "fewer during overload");
    waiting.iter().chain([&running]).for_each(JoinHandle::abort);
}

/// The same with a latency target. A forecast decides there, which depends on what waits.
#[tokio::test(start_paused = true)]
async fn the_engine_says_how_many_items_may_wait_for_a_latency_target() {
    let mut rig = Rig::running(|options| (options.max_batch_size, options.latency_target_ms) = (1, Some(4000.0)));
    let mut worker = rig.worker().await;
    for _ in 0..3 {
        let first = rig.call("it takes a second");
        let batch = worker.batch().await;
        tokio::time::advance(Duration::from_secs(1)).await;
        worker.answer(&batch).await;
        first.await.unwrap();
    }
    let mut inside = vec![rig.call("it runs")];
    let _batch = worker.batch().await;
    inside.extend([rig.call("the worker has it already"), rig.call("it waits")]);
    rig.settle().await;
    let most = rig.deployment.published.most_waiting();
    assert!((2..=5).contains(&most), "one and a half targets, less what the worker has: {most}");
    inside.extend((rig.deployment.waiting.amount()..most).map(|_| rig.call("it waits")));
    rig.settle().await;
    assert!(inside.iter().all(|call| !call.is_finished()), "{most} may wait");
    assert_eq!(outcome(&rig.call("one too many").await.unwrap()), Outcome::WouldBeLate);
    inside.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_large_request_that_was_let_in_is_finished_when_the_door_closes() {
    let mut rig = Rig::running(|_| {});
    let mut worker = rig.worker().await;
    rig.settle().await;
    let deployment = rig.deployment.clone();
    let large =
        tokio::spawn(
            async move { deployment.open_many((0..40).map(|_| call("x")).collect(), &deployment.waiting).await.0 },
        );
    rig.settle().await;
    rig.deployment.close();
    assert_eq!(outcome(&rig.call("new").await.unwrap()), Outcome::Draining);
    for _ in 0..5 {
        let batch = worker.batch().await;
        worker.answer(&batch).await;
    }
    assert!(large.await.unwrap().unwrap().iter().all(|answer| outcome(answer) == Outcome::Ok));
    rig.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_large_request_to_a_model_of_one_item_at_a_time_leaves_room_for_others() {
    let mut rig = Rig::running(|options| (options.batched, options.max_batch_size) = (false, 32));
    let mut worker = rig.worker().await;
    rig.settle().await;
    for _ in 0..3 {
        let first = rig.call("it takes a second");
        let batch = worker.batch().await;
        tokio::time::advance(Duration::from_secs(1)).await;
        worker.answer(&batch).await;
        first.await.unwrap();
    }
    let deployment = rig.deployment.clone();
    let large =
        tokio::spawn(
            async move { deployment.open_many((0..40).map(|_| call("x")).collect(), &deployment.waiting).await.0 },
        );
    rig.settle().await;
    let others: Vec<_> = (0..5).map(|_| rig.call("x")).collect();
    rig.settle().await;
    let inside = rig.gauge(metrics::QUEUED_ITEMS) + rig.gauge(metrics::RUNNING_ITEMS);
    assert_eq!(inside, 2 + 5, "no request is refused");
    for _ in 0..45 {
        let batch = worker.batch().await;
        tokio::time::advance(Duration::from_secs(1)).await;
        worker.answer(&batch).await;
    }
    assert!(large.await.unwrap().unwrap().iter().all(|answer| outcome(answer) == Outcome::Ok));
    for other in others {
        assert_eq!(outcome(&other.await.unwrap()), Outcome::Ok);
    }
    rig.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_between_the_pieces_of_its_request_is_counted_and_leaves_nothing() {
    let mut rig = Rig::running(|options| options.max_queued_items = 10);
    let mut worker = rig.worker().await;
    rig.settle().await;
    let deployment = rig.deployment.clone();
    let large = tokio::spawn(async move {
        let calls = (0..20).map(|n| call(&n.to_string())).collect();
        drop(deployment.open_many(calls, &deployment.waiting).await);
    });
    rig.settle().await;
    let others = fill(&rig, 40);
    for _ in 0..2 {
        let batch = worker.batch().await;
        worker.answer(&batch).await;
    }
    rig.settle().await;
    large.abort();
    assert!(large.await.unwrap_err().is_cancelled());
    assert_eq!(rig.ended(Outcome::Cancelled), 1);
    for _ in 0..5 {
        let batch = worker.batch().await;
        assert!(texts(&batch).iter().all(|(_, text)| text == "other"));
        worker.answer(&batch).await;
    }
    rig.assert_empty().await;
    drop(others);
}
