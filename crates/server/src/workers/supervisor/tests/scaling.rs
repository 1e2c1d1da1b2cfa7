//! Slots that come and go with the load.

use super::{Rig, rig};
use crate::workers::backends::agents::At;
use crate::workers::placement::elastic::Elastic;
use crate::workers::slot::Slot;
use jitney_core::replicas::scaling::rule::{ReplicaBounds, Scaling};
use jitney_core::replicas::scaling::start_time::StartTime;
use jitney_core::request::ReplicaId;
use jitney_core::time::Time;

fn elastic(rig: &Rig, begins_with: u32) -> Elastic {
    let bounds = ReplicaBounds { min: 0, max: 9, target: None, stays: None };
    Elastic {
        scaling: Scaling::new(bounds, begins_with),
        start_time: StartTime::default(),
        pattern: rig.supervisor.slots[0].assignment.clone().unwrap(),
        devices: Vec::new(),
        target: 0,
        fewest: 0,
        slept: false,
        decided: Time(0),
    }
}

fn replica(slot: &Slot) -> Option<u32> {
    slot.assignment.as_ref().map(|assignment| assignment.replica)
}

#[tokio::test]
async fn replicas_come_with_the_first_free_numbers_and_those_go_that_are_missed_least() {
    let mut rig = rig().await;
    let elastic = elastic(&rig, 1);
    rig.supervisor.add_slots("a", &elastic, 3);
    let taken = rig.supervisor.slots.remove(2);
    assert_eq!(replica(&taken), Some(2));
    rig.supervisor.add_slots("a", &elastic, 3);
    let found: Vec<_> = rig.supervisor.slots.iter().filter_map(replica).collect();
    assert_eq!(found, [0, 1, 3, 2, 4, 5]);
    // The first is up, the last one has no worker; the others load: one alone on its machine, three on another one.
    for (index, agent) in [(1, "many"), (2, "one"), (3, "many"), (4, "many")] {
        let at = At { agent: agent.into(), ..At::unknown("host") };
        rig.supervisor.slots.begin(index, ReplicaId(10 + index as u32), format!("w{index}"), 1, Some(at));
        let now = rig.supervisor.clock.now();
        rig.supervisor.slots[index].life.tick(now);
    }
    let mut gone = Vec::new();
    for count in [1, 2, 9] {
        rig.supervisor.remove_slots("a", count).unwrap();
        gone.push(rig.supervisor.slots.iter().filter(|slot| slot.is_surplus).filter_map(replica).collect::<Vec<_>>());
    }
    assert_eq!(gone, [vec![5], vec![3, 4, 5], vec![0, 1, 3, 2, 4, 5]]);
}

#[tokio::test]
async fn a_deployment_whose_replicas_were_lost_does_not_sleep_and_one_that_was_not_used_does() {
    let rig = rig().await;
    let follow = |elastic: &mut Elastic, up: usize| {
        elastic.slept = elastic.sleeps(up);
        elastic.slept
    };
    let mut used = elastic(&rig, 1);
    assert_eq!([1, 0, 0].map(|up| follow(&mut used, up)), [false; 3]);
    let mut unused = elastic(&rig, 0);
    assert!(follow(&mut unused, 0));
    unused.scaling = elastic(&rig, 1).scaling;
    assert_eq!([0, 1, 0].map(|up| follow(&mut unused, up)), [true, false, false], "until its first replica is up");
}

#[tokio::test]
async fn places_go_first_to_deployments_that_have_too_few_and_then_to_those_that_lack_most() {
    let mut rig = rig().await;
    for (name, fewest, more) in [("a", 1, 2), ("b", 1, 4), ("c", 2, 2)] {
        let mut elastic = elastic(&rig, 1);
        elastic.fewest = fewest;
        elastic.pattern.deployment = name.into();
        rig.supervisor.add_slots(name, &elastic, more);
        rig.supervisor.elastic.insert(name.into(), elastic);
    }
    let order = rig.supervisor.in_order_of_lack();
    let names: Vec<&str> = order.iter().filter_map(|&index| rig.supervisor.slots[index].names().0).collect();
    // `a` has the one that it must have; `b` lacks one of those, and `c` both.
    assert_eq!(names.concat(), "bccbabab");
}
