//! Random schedules of everything that can happen: each promise is kept in all of them.

use crate::ops::{ops, rules, run};
use crate::world::Promise;
use proptest::prelude::*;

macro_rules! kept {
    ($($name:ident: $promise:ident;)+) => {
        proptest! {
            #![proptest_config(crate::cases(128))]
            $(
                #[test]
                fn $name(rules in rules(), ops in ops()) {
                    let world = run(rules, &ops);
                    let broken = world.broken(Promise::$promise);
                    prop_assert!(broken.is_empty(), "{:#?}", broken);
                }
            )+
        }
    };
}

kept! {
    every_admitted_item_ends_once_with_its_own_payload_and_a_drain_leaves_nothing: EndsOnce;
    what_a_lost_worker_held_runs_again_alone_or_elsewhere_or_fails_as_told: Suspects;
    what_nobody_waits_for_is_never_launched_and_expires_at_its_deadline: NobodyWaits;
    bounds_hold_refusals_leave_no_trace_and_counters_are_true: Bounds;
    no_replica_is_free_beside_a_ready_lane_and_nothing_leaves_before_its_time: Conserving;
    no_batch_mixes_groups_or_exceeds_a_limit_or_leaves_fitting_items_behind: Batches;
    order_of_arrival_is_kept_and_the_oldest_head_is_passed_four_times_at_most: Order;
    nothing_is_due_before_the_next_wake_and_no_wake_is_for_nothing: Wakes;
}

proptest! {
    #![proptest_config(crate::cases(50))]

    #[test]
    fn the_same_events_give_the_same_actions(rules in rules(), ops in ops()) {
        prop_assert_eq!(run(rules, &ops).log, run(rules, &ops).log);
    }
}
