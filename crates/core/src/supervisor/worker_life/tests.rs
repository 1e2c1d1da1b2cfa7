use super::*;

fn at(seconds: u64) -> Time {
    Time(0) + Duration::from_secs(seconds)
}

fn ready() -> WorkerLife {
    let mut life = WorkerLife::new(Duration::from_secs(60), false);
    assert_eq!(life.tick(at(0)), Some(Command::Spawn));
    life.apply(at(0), Event::Spawned);
    life.apply(at(1), Event::Connected);
    assert_eq!(life.apply(at(2), Event::Ready), Some(Command::Up));
    life
}

#[test]
fn a_slot_that_is_added_later_does_not_give_up_after_its_first_failure() {
    for (mut life, gives_up) in [
        (WorkerLife::new(Duration::from_secs(60), false), true),
        (WorkerLife::of_proven(Duration::from_secs(60), false), false),
    ] {
        assert_eq!(life.tick(at(0)), Some(Command::Spawn));
        let command = life.apply(at(1), Event::Exited);
        assert_eq!(matches!(command, Some(Command::GiveUp(_))), gives_up, "{command:?}");
    }
}

#[test]
fn a_worker_that_served_is_replaced_at_once() {
    let mut life = ready();
    life.apply(at(3), Event::Served);
    assert_eq!(life.apply(at(3), Event::Exited), Some(Command::Down(Cause::Died)));
    assert_eq!(life.tick(at(3)), Some(Command::Spawn));
}

#[test]
fn deaths_without_an_answer_back_off_and_become_a_crash_loop() {
    let mut life = ready();
    for failure in 1..=CRASH_LOOP {
        assert_eq!(life.is_crash_looping(), failure > CRASH_LOOP);
        life.apply(at(3), Event::Exited);
        assert_eq!(life.tick(at(3)), None);
        assert_eq!(life.tick(at(60)), Some(Command::Spawn));
        life.apply(at(60), Event::Spawned);
    }
    assert!(life.is_crash_looping());
    life.apply(at(61), Event::Ready);
    life.apply(at(61), Event::Served);
    assert!(!life.is_crash_looping());
}

#[test]
fn a_broken_worker_is_replaced_at_once_if_it_had_answered_and_after_a_growing_pause_if_not() {
    let mut life = ready();
    life.apply(at(3), Event::Served);
    assert_eq!(life.apply(at(4), Event::Failed(Cause::Broken)), Some(Command::Kill));
    assert!(!life.is_up(), "it is not ready from the moment it says so");
    assert_eq!(life.apply(at(4), Event::Exited), Some(Command::Down(Cause::Broken)));
    let mut pauses = Vec::new();
    for round in 1..=CRASH_LOOP + 1 {
        let mut now = at(100 * u64::from(round));
        while life.tick(now).is_none() {
            now = now + Duration::from_millis(50);
        }
        pauses.push(now);
        life.apply(now, Event::Ready);
        life.apply(now, Event::Failed(Cause::Broken));
        assert_eq!(life.apply(at(100 * u64::from(round + 1)), Event::Exited), Some(Command::Down(Cause::Broken)));
    }
    let waits: Vec<_> = (1u64..).zip(&pauses).map(|(round, &now)| (now - at(100 * round)).as_millis()).collect();
    assert_eq!(waits, [0, 250, 500, 1000, 2000]);
    assert!(life.is_crash_looping());
}

#[test]
fn deaths_of_suspects_on_trial_are_no_crash_loop() {
    let mut life = ready();
    for _ in 0..2 * CRASH_LOOP {
        life.apply(at(3), Event::Trial(true));
        assert_eq!(life.apply(at(3), Event::Exited), Some(Command::Down(Cause::Died)));
        assert_eq!(life.tick(at(3)), Some(Command::Spawn), "the next suspect waits");
        life.apply(at(3), Event::Ready);
    }
    assert!(!life.is_crash_looping());
}

#[test]
fn a_worker_of_old_files_ends_in_order_and_another_takes_its_place_at_once() {
    let mut life = ready();
    for _ in 0..2 * CRASH_LOOP {
        assert_eq!(life.apply(at(3), Event::Renew), Some(Command::End));
        assert!(life.is_up(), "its batches are answered");
        assert_eq!(life.apply(at(3), Event::Exited), Some(Command::Down(Cause::Renewed)));
        assert_eq!(life.tick(at(3)), Some(Command::Spawn));
        life.apply(at(3), Event::Ready);
    }
    assert!(!life.is_crash_looping());
    // Its link may end before its process does.
    life.apply(at(3), Event::Renew);
    assert_eq!(life.apply(at(3), Event::Failed(Cause::Died)), Some(Command::Kill));
    assert_eq!(life.apply(at(3), Event::Exited), Some(Command::Down(Cause::Renewed)));
    assert_eq!(life.tick(at(3)), Some(Command::Spawn));
    life.apply(at(3), Event::Ready);
    // While it loads there is nothing to finish.
    life.apply(at(4), Event::Exited);
    assert_eq!(life.tick(at(60)), Some(Command::Spawn));
    assert_eq!(life.apply(at(61), Event::Renew), Some(Command::Kill));
    assert_eq!(life.apply(at(61), Event::Exited), Some(Command::Ended(Cause::Renewed)));
    assert_eq!(life.tick(at(61)), Some(Command::Spawn));
}

#[test]
fn what_could_not_be_loaded_is_tried_again_at_once_when_files_change() {
    let mut life = ready();
    for _ in 0..CRASH_LOOP {
        life.apply(at(3), Event::Exited);
        assert_eq!(life.tick(at(60)), Some(Command::Spawn));
        life.apply(at(60), Event::Failed(Cause::LoadFailed));
    }
    life.apply(at(60), Event::Exited);
    assert!(life.is_crash_looping());
    assert_eq!(life.tick(at(60)), None);
    life.apply(at(60), Event::Renew);
    assert!(!life.is_crash_looping());
    assert_eq!(life.tick(at(60)), Some(Command::Spawn));
}

#[test]
fn files_that_cannot_be_loaded_are_loaded_again_when_they_change_and_not_before() {
    let mut life = WorkerLife::new(Duration::from_secs(60), true);
    life.tick(at(0));
    life.apply(at(1), Event::Ready);
    for round in 1..4 {
        life.apply(at(round * 100), Event::Renew);
        life.apply(at(round * 100), Event::Exited);
        assert_eq!(life.tick(at(round * 100)), Some(Command::Spawn));
        assert_eq!(life.apply(at(round * 100), Event::Failed(Cause::LoadFailed)), Some(Command::Kill));
        assert_eq!(life.apply(at(round * 100), Event::Exited), Some(Command::Ended(Cause::LoadFailed)));
        assert!(life.awaits_change() && life.is_vacant() && life.is_crash_looping());
        assert_eq!(life.tick(at(round * 100 + 99)), None);
    }
    life.apply(at(500), Event::Renew);
    assert!(!life.is_crash_looping());
    assert_eq!(life.tick(at(500)), Some(Command::Spawn));
    // A change while it loads: the failure is that of the files before it.
    life.apply(at(501), Event::Failed(Cause::LoadFailed));
    life.apply(at(501), Event::Renew);
    life.apply(at(501), Event::Exited);
    assert_eq!(life.tick(at(501)), Some(Command::Spawn));
    // A worker that dies while it loads may have been killed: it is replaced as ever.
    life.apply(at(502), Event::Exited);
    assert_eq!(life.tick(at(560)), Some(Command::Spawn));
}

#[test]
fn silence_is_found_and_the_replica_is_only_gone_once_its_process_is() {
    let mut life = ready();
    life.apply(at(4), Event::Heard);
    assert_eq!(life.tick(at(10)), None);
    assert_eq!(life.tick(at(11)), Some(Command::Kill));
    assert_eq!(life.tick(at(12)), None);
    assert_eq!(life.apply(at(12), Event::Exited), Some(Command::Down(Cause::Silent)));
}

#[test]
fn a_killed_process_that_does_not_end_is_abandoned() {
    let mut life = ready();
    assert_eq!(life.apply(at(3), Event::Failed(Cause::Hung)), Some(Command::Kill));
    assert_eq!(life.apply(at(3), Event::Failed(Cause::Died)), None, "it is dying already");
    assert_eq!(life.tick(at(8)), Some(Command::Down(Cause::Hung)));
}

#[test]
fn loading_is_timed_from_the_assignment() {
    let mut life = WorkerLife::new(Duration::from_secs(60), false);
    life.tick(at(0));
    life.apply(at(1), Event::Spawned);
    life.assigned(at(50), Duration::from_secs(600));
    assert_eq!(life.tick(at(649)), None);
    assert_eq!(life.tick(at(650)), Some(Command::Kill));
    assert!(!life.is_vacant());
    life.apply(at(651), Event::Exited);
    assert!(life.is_vacant());
}

#[test]
fn a_first_load_that_fails_ends_the_server() {
    let mut life = WorkerLife::new(Duration::from_secs(60), false);
    assert_eq!(life.tick(at(0)), Some(Command::Spawn));
    life.apply(at(0), Event::Spawned);
    assert_eq!(life.tick(at(60)), Some(Command::Kill));
    assert_eq!(life.apply(at(61), Event::Exited), Some(Command::GiveUp(Cause::LoadTimeout)));
    assert_eq!(life.tick(at(99)), None);
}

fn remote() -> WorkerLife {
    let mut life = WorkerLife::new(Duration::from_secs(60), false);
    assert_eq!(life.tick(at(0)), Some(Command::Spawn));
    life.placed(true);
    life.apply(at(1), Event::Connected);
    assert_eq!(life.apply(at(2), Event::Ready), Some(Command::Up));
    life
}

#[test]
fn a_remote_worker_that_falls_silent_may_rejoin_with_its_model() {
    let mut life = remote();
    assert_eq!(life.tick(at(8)), Some(Command::Down(Cause::Away)));
    assert!(life.is_away() && !life.is_up() && !life.is_vacant());
    assert_eq!(life.apply(at(40), Event::Rejoined), Some(Command::Up));
    assert_eq!(life.tick(at(41)), None);
}

#[test]
fn a_remote_worker_is_doubtful_between_the_first_silence_and_the_next_word() {
    let mut life = remote();
    life.apply(at(3), Event::Heard);
    assert_eq!(life.tick(at(4)), None);
    assert_eq!(life.tick(at(5)), Some(Command::Doubt(true)));
    assert_eq!(life.tick(at(6)), None, "that is said once");
    assert!(life.is_up());
    life.apply(at(7), Event::Heard);
    assert_eq!(life.tick(at(7)), Some(Command::Doubt(false)));
    assert_eq!(life.tick(at(9)), Some(Command::Doubt(true)));
    assert_eq!(life.tick(at(14)), Some(Command::Down(Cause::Away)));
    assert_eq!(life.apply(at(20), Event::Rejoined), Some(Command::Up));
    assert_eq!(life.tick(at(21)), None, "it is heard");
    let mut life = ready();
    life.apply(at(3), Event::Heard);
    assert_eq!(life.tick(at(9)), None, "a process of this machine does not lose its link");
}

#[test]
fn the_late_end_of_the_link_of_a_worker_that_fell_silent_does_not_kill_it() {
    let mut life = remote();
    assert_eq!(life.tick(at(8)), Some(Command::Down(Cause::Away)));
    assert_eq!(life.apply(at(30), Event::LinkLost { is_watched: true }), None);
    assert_eq!(life.apply(at(31), Event::Rejoined), Some(Command::Up));
}

#[test]
fn a_worker_that_is_silent_although_its_machine_is_not_is_replaced_soon() {
    let mut life = remote();
    life.watched(at(7), true);
    assert_eq!(life.tick(at(8)), Some(Command::Down(Cause::Away)));
    assert_eq!(life.tick(at(22)), None);
    assert_eq!(life.tick(at(23)), Some(Command::Kill));
}

#[test]
fn a_worker_whose_silence_is_noticed_before_that_of_its_machine_keeps_its_lease() {
    let mut life = remote();
    life.watched(at(7), true);
    assert_eq!(life.tick(at(8)), Some(Command::Down(Cause::Away)));
    life.watched(at(9), false);
    assert_eq!(life.tick(at(68)), None);
    life.watched(at(68), true);
    assert_eq!(life.apply(at(68), Event::Rejoined), Some(Command::Up));
}

#[test]
fn a_worker_whose_link_and_agent_were_closed_together_is_replaced_soon() {
    for agent_first in [true, false] {
        let mut life = remote();
        life.watched(at(2), true);
        if agent_first {
            assert_eq!(life.apply(at(3), Event::LinkLost { is_watched: false }), Some(Command::Down(Cause::Away)));
        } else {
            assert_eq!(life.apply(at(3), Event::LinkLost { is_watched: true }), None);
            assert_eq!(life.apply(at(3), Event::Away), Some(Command::Down(Cause::Away)));
        }
        life.watched(at(4), false);
        assert_eq!((life.away_until(), life.tick(at(17))), (Some(at(18)), None));
        assert_eq!(life.tick(at(18)), Some(Command::Kill));
    }
}

#[test]
fn a_silent_worker_whose_agent_was_away_for_a_moment_is_replaced_soon_too() {
    let mut life = remote();
    life.watched(at(7), true);
    assert_eq!(life.tick(at(8)), Some(Command::Down(Cause::Away)));
    life.watched(at(9), false);
    life.watched(at(10), true);
    assert_eq!(life.tick(at(24)), None);
    assert_eq!(life.tick(at(25)), Some(Command::Kill));
}

#[test]
fn a_first_worker_of_another_machine_may_fail_to_connect_a_few_times() {
    let mut life = WorkerLife::new(Duration::from_secs(60), false);
    for failure in 1..=CRASH_LOOP {
        assert_eq!(life.tick(at(u64::from(failure) * 40)), Some(Command::Spawn));
        life.placed(true);
        let ends = life.apply(at(u64::from(failure) * 40), Event::Exited);
        let gives_up = ends == Some(Command::GiveUp(Cause::Died));
        assert_eq!(gives_up, failure == CRASH_LOOP, "{ends:?}");
    }
}

#[test]
fn a_remote_worker_that_stays_away_is_killed_and_started_elsewhere_at_once() {
    let mut life = remote();
    assert_eq!(life.apply(at(3), Event::Away), Some(Command::Down(Cause::Away)));
    assert_eq!(life.tick(at(62)), None);
    assert_eq!(life.tick(at(63)), Some(Command::Kill));
    assert_eq!(life.tick(at(68)), Some(Command::Ended(Cause::Away)), "its end was not seen");
    assert_eq!(life.tick(at(68)), Some(Command::Spawn));
    assert!(!life.is_crash_looping());
}

#[test]
fn the_end_of_a_remote_process_is_told_from_the_loss_of_its_link() {
    let mut life = remote();
    assert_eq!(life.apply(at(3), Event::LinkLost { is_watched: true }), None);
    assert!(!life.is_up());
    assert_eq!(life.apply(at(3), Event::Exited), Some(Command::Down(Cause::Died)));
    let mut life = remote();
    life.apply(at(3), Event::LinkLost { is_watched: true });
    assert_eq!(life.tick(at(4)), Some(Command::Down(Cause::Away)));
    assert_eq!(life.apply(at(5), Event::Exited), Some(Command::Ended(Cause::Away)), "it was away already");
    let mut life = remote();
    assert_eq!(life.apply(at(3), Event::LinkLost { is_watched: false }), Some(Command::Down(Cause::Away)));
}

#[test]
fn a_first_load_that_ends_with_its_machine_does_not_end_the_server() {
    for (event, cause) in [(Event::LinkLost { is_watched: false }, Cause::Away), (Event::Leave, Cause::Left)] {
        let mut life = WorkerLife::new(Duration::from_secs(60), false);
        life.tick(at(0));
        life.placed(true);
        assert_eq!(life.apply(at(1), event), Some(Command::Kill));
        assert_eq!(life.apply(at(2), Event::Exited), Some(Command::Ended(cause)));
        assert_eq!(life.tick(at(2)), Some(Command::Spawn));
    }
}

#[test]
fn a_worker_whose_machine_goes_away_answers_its_batches_first() {
    let mut life = remote();
    assert_eq!(life.apply(at(3), Event::Leave), Some(Command::End));
    assert!(life.is_up() && life.is_leaving());
    assert_eq!(life.apply(at(3), Event::Exited), Some(Command::Down(Cause::Left)));
    assert_eq!(life.tick(at(3)), Some(Command::Spawn));
    assert_eq!(life.apply(at(3), Event::NoPlace), None);
    assert!(life.is_vacant());
    assert_eq!(life.tick(at(4)), Some(Command::Spawn), "it is tried again");
}

#[test]
fn a_worker_of_an_earlier_front_fills_a_slot_that_waits() {
    let mut life = WorkerLife::new(Duration::from_secs(60), false);
    assert_eq!(life.apply(at(1), Event::Rejoined), Some(Command::Up));
    assert_eq!(life.apply(at(2), Event::Rejoined), None);
    assert_eq!(life.apply(at(2), Event::LinkLost { is_watched: false }), Some(Command::Down(Cause::Away)));
}

fn loading(is_proven: bool) -> WorkerLife {
    let mut life = WorkerLife::new(Duration::from_secs(60), false);
    life.was_ever_ready = is_proven;
    assert_eq!(life.tick(at(0)), Some(Command::Spawn));
    life.placed(true);
    life.apply(at(1), Event::Connected);
    life
}

#[test]
fn a_remote_worker_that_dies_while_it_loads_has_died_although_its_link_ends_first() {
    let mut life = loading(false);
    assert_eq!(life.apply(at(2), Event::LinkLost { is_watched: true }), None);
    assert_eq!(life.apply(at(2), Event::Exited), Some(Command::GiveUp(Cause::Died)));
    let mut life = loading(true);
    life.apply(at(2), Event::LinkLost { is_watched: true });
    assert_eq!(life.apply(at(2), Event::Exited), Some(Command::Ended(Cause::Died)));
    assert_eq!(life.tick(at(2)), None, "the next one waits");
    assert_eq!(life.tick(at(3)), Some(Command::Spawn));
}

#[test]
fn a_remote_worker_that_loses_its_link_while_it_loads_is_away_if_its_agent_says_nothing() {
    let mut life = loading(false);
    life.apply(at(2), Event::LinkLost { is_watched: true });
    assert_eq!(life.tick(at(3)), Some(Command::Kill));
    assert_eq!(life.apply(at(4), Event::Exited), Some(Command::Ended(Cause::Away)));
    assert_eq!(life.tick(at(4)), Some(Command::Spawn));
    let mut life = loading(false);
    life.apply(at(2), Event::LinkLost { is_watched: true });
    assert_eq!(life.apply(at(2), Event::Leave), Some(Command::Kill), "it has nothing to finish");
}

#[test]
fn a_trial_that_the_loss_of_the_link_has_ended_excuses_no_later_death() {
    let mut life = remote();
    life.apply(at(3), Event::Trial(true));
    life.apply(at(3), Event::Away);
    assert_eq!(life.apply(at(4), Event::Rejoined), Some(Command::Up));
    assert_eq!(life.apply(at(5), Event::Exited), Some(Command::Down(Cause::Died)));
    assert_eq!(life.tick(at(5)), None, "it has a pause");
}
