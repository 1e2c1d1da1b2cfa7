//! Items for which a model of the same server asks: they enter where clients are refused, and rank like the request behind them.

use jitney_core::config::options::DeploymentOptions;
use jitney_core::config::rules::Rules;
use jitney_core::queue::group_key::GroupKey;
use jitney_core::request::{ItemId, Priority, ReplicaClass, ReplicaId};
use jitney_core::scheduler::action::Action;
use jitney_core::scheduler::item::{Asked, NewItem, Payload};
use jitney_core::scheduler::state::Scheduler;
use jitney_core::tables::outcome::Outcome;
use jitney_core::time::Time;
use std::time::Duration;

/// An item of a client, or one for which a model asks.
#[derive(Debug)]
struct Input(Option<Asked>);

impl Payload for Input {
    type Input = ();

    fn input(&self) -> &() {
        &()
    }

    fn fingerprint((): &()) -> u64 {
        0
    }

    fn asked(&self) -> Option<Asked> {
        self.0
    }
}

fn item(id: u64, since: Option<u64>) -> NewItem<Input> {
    NewItem {
        id: ItemId(id),
        group: GroupKey::default(),
        cost: 1,
        bytes: 10,
        priority: Priority::Normal,
        timeout: None,
        payload: Input(since.map(|since| Asked { since: Time(since), may_stream: false })),
    }
}

fn scheduler(tweak: impl FnOnce(&mut DeploymentOptions)) -> Scheduler<Input> {
    let mut options = DeploymentOptions { max_batch_size: 1, policy: "eager".into(), ..DeploymentOptions::for_test() };
    tweak(&mut options);
    Scheduler::new(Rules::new(&options).expect("valid options"))
}

fn launched(scheduler: &mut Scheduler<Input>, now: Time) -> Vec<u64> {
    let mut found = Vec::new();
    while let Some(action) = scheduler.poll(now) {
        if let Action::Launch(launch) = action {
            found.extend(launch.items.iter().map(|id| id.0));
        }
    }
    found
}

fn refusal(scheduler: &mut Scheduler<Input>, now: Time, item: NewItem<Input>) -> Option<Outcome> {
    scheduler.submit(now, item).err().map(|(_, refusal)| refusal.outcome)
}

#[test]
fn an_asked_item_has_the_place_of_the_request_behind_it() {
    let mut scheduler = scheduler(|_| {});
    // Asked items wait for a first replica; clients are refused until then.
    assert_eq!(refusal(&mut scheduler, Time(50), item(1, None)), Some(Outcome::Loading));
    assert!(scheduler.submit(Time(100), item(2, Some(60))).is_ok());
    assert!(scheduler.submit(Time(110), item(3, Some(20))).is_ok());
    scheduler.replica_up(Time(120), ReplicaId(1), ReplicaClass::default());
    assert_eq!(launched(&mut scheduler, Time(120)).first(), Some(&3), "its request came first");
}

#[test]
fn an_asked_item_is_refused_for_bytes_and_for_workers_that_keep_dying_and_nothing_else() {
    let mut scheduler = scheduler(|options| {
        options.max_queued_items = 1;
        options.max_queued_bytes = 35;
    });
    scheduler.replica_up(Time(0), ReplicaId(1), ReplicaClass::default());
    for id in 1..=2 {
        let _ = scheduler.submit(Time(id), item(id, None));
        launched(&mut scheduler, Time(id));
    }
    while scheduler.submit(Time(10), item(10 + scheduler.len() as u64, None)).is_ok() {}
    let full = scheduler.queued_bytes();
    let room = (35 - full) / 10;
    for id in 0..room {
        assert!(
            scheduler.submit(Time(20), item(100 + id, Some(1))).is_ok(),
            "a full queue of items does not refuse it"
        );
    }
    assert!(room > 0);
    assert_eq!(refusal(&mut scheduler, Time(20), item(200, Some(1))), Some(Outcome::QueueBytesFull));
    scheduler.crash_looping();
    assert_eq!(refusal(&mut scheduler, Time(21), item(201, Some(1))), Some(Outcome::CrashLooping));
}

#[test]
fn what_is_asked_has_the_latest_deadline_and_the_oldest_request_of_its_parents() {
    let mut scheduler = scheduler(|options| options.max_batch_size = 4);
    assert!(scheduler.submit(Time(5), item(1, Some(2))).is_ok());
    assert!(scheduler.submit(Time(9), NewItem { priority: Priority::High, ..item(2, Some(8)) }).is_ok());
    scheduler.replica_up(Time(10), ReplicaId(1), ReplicaClass::default());
    let both = [ItemId(1), ItemId(2)];
    assert_eq!(launched(&mut scheduler, Time(10)).len(), 2);
    let terms = scheduler.parent_terms(ReplicaId(1), &both).expect("it has both");
    let timeout = Rules::new(&DeploymentOptions::for_test()).expect("valid options").request_timeout;
    assert_eq!((terms.since, terms.priority, terms.deadline), (Time(2), Priority::High, Time(9) + timeout));
    assert_eq!(scheduler.parent_terms(ReplicaId(2), &both), None, "another worker has them");
    assert!(scheduler.cancel(ItemId(1)).is_some());
    assert_eq!(scheduler.parent_terms(ReplicaId(1), &both).map(|terms| terms.since), Some(Time(8)));
    assert_eq!(scheduler.parent_terms(ReplicaId(1), &[ItemId(1)]), None, "it has ended");
}

#[test]
fn the_first_part_moves_the_deadline_of_an_asked_item_if_it_may_move_that_of_the_item_behind_it() {
    for may_stream in [false, true] {
        let mut scheduler = scheduler(|options| {
            options.request_timeout_s = 10.0;
            options.stream_timeout_s = 100.0;
        });
        let payload = Input(Some(Asked { since: Time(0), may_stream }));
        let timeout = Some(Duration::from_secs(10));
        assert!(scheduler.submit(Time(0), NewItem { timeout, payload, ..item(1, None) }).is_ok());
        scheduler.replica_up(Time(0), ReplicaId(1), ReplicaClass::default());
        assert_eq!(launched(&mut scheduler, Time(0)), [1]);
        let batch = scheduler.batch_of(ReplicaId(1), ItemId(1)).expect("it was launched");
        scheduler.part_sent(Time(1), batch, ItemId(1));
        let terms = scheduler.parent_terms(ReplicaId(1), &[ItemId(1)]).expect("it is computed");
        let seconds = if may_stream { 100 } else { 10 };
        assert_eq!(terms.deadline, Time(0) + Duration::from_secs(seconds));
    }
}
