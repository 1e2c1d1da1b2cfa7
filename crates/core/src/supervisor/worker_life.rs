//! The life of the workers of one slot: start, watch, restart with back-off, give up if the first load fails. The caller reports
//! what happened and carries out the commands.

use crate::supervisor::event::{Cause, Command, Event};
use crate::time::Time;
use std::time::Duration;

/// A worker that sends nothing for this long, not even the answer to a ping, is stopped or stuck.
pub const SILENT_AFTER: Duration = Duration::from_secs(7);
/// A worker on another machine that sends nothing for this long may be lost: it gets nothing new.
pub const DOUBTFUL_AFTER: Duration = Duration::from_secs(2);
/// A process that was killed but does not end (stuck in a driver) is given up after this.
const ABANDON_AFTER: Duration = Duration::from_secs(5);
/// The first pause before a worker is started again after it died without having served anything.
const FIRST_BACK_OFF: Duration = Duration::from_millis(250);
/// The longest pause before a worker is started again.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);
/// So long a worker on another machine, and its agent, keep what they have without their front.
pub const LEASE: Duration = Duration::from_secs(60);
/// A worker whose link was closed connects again within this, if it lives: the longest silence that it allows, and its pauses.
pub const REJOINS_WITHIN: Duration = Duration::from_secs(15);
/// Who watches a process reports its end within this.
const REPORTED_WITHIN: Duration = Duration::from_secs(1);
/// Deaths in a row without an answer in between that make a crash loop.
const CRASH_LOOP: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    BackingOff {
        until: Time,
    },
    Starting {
        since: Time,
    },
    Up,
    /// Its link is lost. Whether its process has ended is reported until then.
    Unclear {
        until: Time,
    },
    /// It cannot be reached. Until then it may rejoin with the model that it has loaded.
    Away {
        until: Time,
    },
    Dying {
        since: Time,
        cause: Cause,
        was_up: bool,
    },
    /// What could not be loaded is loaded again when its files change.
    AwaitingChange,
    GivenUp,
}

/// The state of one slot, in which one worker follows another.
#[allow(clippy::struct_excessive_bools, reason = "independent facts about the current worker")]
#[derive(Debug)]
pub struct WorkerLife {
    load_timeout: Duration,
    state: State,
    /// When the current worker was heard of last.
    heard: Option<Time>,
    was_ever_ready: bool,
    has_served: bool,
    on_trial: bool,
    /// Why the current worker was asked to end in order.
    leaves_for: Option<Cause>,
    /// The current worker outlives its link: it runs on another machine.
    is_remote: bool,
    /// Nothing was heard of the current worker for a while.
    is_doubtful: bool,
    /// The agent of its machine is connected.
    is_watched: bool,
    /// Somebody reports changes of its files, by `Event::Renew`.
    renews: bool,
    failures: u32,
}

impl WorkerLife {
    /// The time that loading and warming up may take.
    pub fn load_timeout(&self) -> Duration {
        self.load_timeout
    }

    /// A slot whose first worker is to be started now. With `renews`, changes of its files are reported: a worker that
    /// fails to load is then followed by the next one after a change, because the same files fail again.
    pub fn new(load_timeout: Duration, renews: bool) -> WorkerLife {
        let state = State::BackingOff { until: Time(0) };
        WorkerLife {
            load_timeout,
            state,
            heard: None,
            was_ever_ready: false,
            has_served: false,
            on_trial: false,
            leaves_for: None,
            is_remote: false,
            is_doubtful: false,
            is_watched: false,
            renews,
            failures: 0,
        }
    }

    /// A slot that is added to others of its deployment: that the model can be loaded is known, so a failure does not end the
    /// server.
    #[must_use]
    pub fn of_proven(load_timeout: Duration, renews: bool) -> WorkerLife {
        WorkerLife { was_ever_ready: true, ..WorkerLife::new(load_timeout, renews) }
    }

    /// Whether its workers keep dying without ever answering anything.
    pub fn is_crash_looping(&self) -> bool {
        self.failures >= CRASH_LOOP || self.awaits_change()
    }

    /// Whether it could not be loaded and is loaded again when its files change.
    pub fn awaits_change(&self) -> bool {
        self.state == State::AwaitingChange
    }

    /// Whether its worker is being killed, so that nothing it still reports counts.
    pub fn is_dying(&self) -> bool {
        matches!(self.state, State::Dying { .. })
    }

    /// Why its worker is being ended; `None` if it is not.
    pub fn ends_for(&self) -> Option<Cause> {
        match self.state {
            State::Dying { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// Whether its worker is ready.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Whether its worker was asked to end when its batches are answered.
    pub fn is_leaving(&self) -> bool {
        self.leaves_for.is_some()
    }

    /// Whether its worker cannot be reached and may rejoin.
    pub fn is_away(&self) -> bool {
        matches!(self.state, State::Away { .. })
    }

    /// Whether its worker is being started or loads its model.
    pub fn is_starting(&self) -> bool {
        matches!(self.state, State::Starting { .. })
    }

    /// Where its worker was started. On another machine it outlives its link, and its process is not seen from here.
    pub fn placed(&mut self, is_remote: bool) {
        self.is_remote = is_remote;
    }

    /// Whether the agent of its machine is connected. Then silence is not that of the machine.
    pub fn watched(&mut self, now: Time, is_watched: bool) {
        let was_watched = std::mem::replace(&mut self.is_watched, is_watched);
        if let State::Away { until } = &mut self.state
            && was_watched
            && !is_watched
        {
            // Not only the worker is silent but its machine: the worker was noticed first.
            *until = (*until).max(now + LEASE);
        }
    }

    /// Whether the slot has no worker: the next one is not due yet, or none will be started.
    pub fn is_vacant(&self) -> bool {
        matches!(self.state, State::BackingOff { .. } | State::AwaitingChange | State::GivenUp)
    }

    /// Whether no worker is started in the slot any more.
    pub fn is_given_up(&self) -> bool {
        self.state == State::GivenUp
    }

    /// A worker that has imported its target gets its deployment, and may take `load_timeout` from now on.
    pub fn assigned(&mut self, now: Time, load_timeout: Duration) {
        self.load_timeout = load_timeout;
        if matches!(self.state, State::Starting { .. }) {
            self.state = State::Starting { since: now };
        }
    }

    /// Applies an event.
    pub fn apply(&mut self, now: Time, event: Event) -> Option<Command> {
        match event {
            Event::Spawned => {
                if matches!(self.state, State::Starting { .. }) {
                    self.state = State::Starting { since: now };
                }
                None
            }
            Event::Connected => {
                self.heard = Some(now);
                if self.is_starting() {
                    self.state = State::Starting { since: now };
                }
                None
            }
            Event::Heard => {
                self.heard = Some(now);
                None
            }
            Event::Trial(begins) => {
                self.on_trial = begins;
                None
            }
            Event::Served => {
                (self.has_served, self.failures) = (true, 0);
                None
            }
            Event::Ready if matches!(self.state, State::Starting { .. }) => {
                self.was_ever_ready = true;
                (self.state, self.is_doubtful) = (State::Up, false);
                Some(Command::Up)
            }
            Event::Renew => self.renew(now),
            Event::Leave => self.leave(now, Cause::Left),
            Event::NoPlace => {
                if self.is_starting() {
                    self.state = State::BackingOff { until: now };
                }
                None
            }
            Event::LinkLost { is_watched } => self.link_lost(now, is_watched),
            Event::Away => self.away(now, LEASE),
            Event::Rejoined if self.is_away() || matches!(self.state, State::BackingOff { .. }) => {
                (self.was_ever_ready, self.is_remote, self.leaves_for) = (true, true, None);
                (self.state, self.heard, self.is_doubtful) = (State::Up, Some(now), false);
                Some(Command::Up)
            }
            Event::Ready | Event::Rejoined => None,
            Event::Failed(cause) => self.kill(now, cause),
            Event::Exited => self.exited(now),
        }
    }

    /// What is due at this time although nothing has happened.
    pub fn tick(&mut self, now: Time) -> Option<Command> {
        match self.state {
            State::BackingOff { until } if now >= until => {
                // The worker is being started: another tick must not start a second one.
                self.state = State::Starting { since: now };
                (self.heard, self.has_served, self.on_trial) = (None, false, false);
                (self.leaves_for, self.is_remote) = (None, false);
                Some(Command::Spawn)
            }
            State::Dying { since, .. } if now - since >= ABANDON_AFTER => self.exited(now),
            State::Starting { since } if now - since >= self.load_timeout => self.kill(now, Cause::LoadTimeout),
            State::Unclear { until } if now >= until => self.away(now, REJOINS_WITHIN),
            State::Away { until } if now >= until => self.kill(now, Cause::Away),
            State::Starting { .. } | State::Up if self.heard.is_some_and(|at| now - at >= SILENT_AFTER) => {
                match (self.is_remote, self.is_watched) {
                    (false, _) => self.kill(now, Cause::Silent),
                    // Its machine is there, so the process is stopped, or dials again soon.
                    (true, true) => self.away(now, REJOINS_WITHIN),
                    (true, false) => self.away(now, LEASE),
                }
            }
            State::Up if self.is_remote => {
                let is_doubtful = self.heard.is_some_and(|at| now - at >= DOUBTFUL_AFTER);
                let was_doubtful = std::mem::replace(&mut self.is_doubtful, is_doubtful);
                (is_doubtful != was_doubtful).then_some(Command::Doubt(is_doubtful))
            }
            _ => None,
        }
    }

    /// The files have changed: failures of the old ones do not count.
    fn renew(&mut self, now: Time) -> Option<Command> {
        self.failures = 0;
        if matches!(self.state, State::BackingOff { .. } | State::AwaitingChange) {
            self.leaves_for = Some(Cause::Renewed);
            self.state = State::BackingOff { until: now };
            return None;
        }
        self.leave(now, Cause::Renewed)
    }

    fn leave(&mut self, now: Time, cause: Cause) -> Option<Command> {
        match self.state {
            State::BackingOff { .. } | State::AwaitingChange | State::GivenUp => return None,
            _ => self.leaves_for = Some(cause),
        }
        match self.state {
            // It stays up until it has ended, and answers the batches that it has.
            State::Up => Some(Command::End),
            State::Starting { .. } | State::Away { .. } => self.kill(now, cause),
            _ => None,
        }
    }

    fn link_lost(&mut self, now: Time, is_watched: bool) -> Option<Command> {
        match self.state {
            State::Up if self.is_remote && is_watched => {
                self.state = State::Unclear { until: now + REPORTED_WITHIN };
                None
            }
            State::Up | State::Starting { .. } if self.is_remote => self.away(now, REJOINS_WITHIN),
            // It was lost before, by its silence, and its connection ends only now.
            State::Unclear { .. } | State::Away { .. } => None,
            _ => self.kill(now, Cause::Died),
        }
    }

    /// A worker that has loaded its model keeps it for a while. One that has not is started elsewhere.
    fn away(&mut self, now: Time, longest: Duration) -> Option<Command> {
        match self.state {
            // It was about to end, and its agent sees to that.
            State::Up | State::Unclear { .. } if self.is_leaving() => self.exited(now),
            State::Up | State::Unclear { .. } => {
                (self.state, self.heard) = (State::Away { until: now + longest }, None);
                Some(Command::Down(Cause::Away))
            }
            State::Starting { .. } => self.kill(now, Cause::Away),
            _ => None,
        }
    }

    fn kill(&mut self, now: Time, cause: Cause) -> Option<Command> {
        if !matches!(self.state, State::Starting { .. } | State::Up | State::Unclear { .. } | State::Away { .. }) {
            return None;
        }
        let was_up = matches!(self.state, State::Up | State::Unclear { .. });
        self.state = State::Dying { since: now, cause, was_up };
        Some(Command::Kill)
    }

    fn exited(&mut self, now: Time) -> Option<Command> {
        let (cause, was_up) = match self.state {
            State::Dying { cause, was_up, .. } => (cause, was_up),
            State::Starting { .. } => (Cause::Died, false),
            State::Away { .. } => (Cause::Away, false),
            State::Up | State::Unclear { .. } => (Cause::Died, true),
            State::BackingOff { .. } | State::AwaitingChange | State::GivenUp => return None,
        };
        // A worker that was asked to end has not died, whether its link or its process ended first.
        let cause = self.leaves_for.filter(|_| cause == Cause::Died).unwrap_or(cause);
        let is_outdated = self.leaves_for == Some(Cause::Renewed);
        // The way from another machine may fail, or its place may be too busy to connect in time.
        let may_try_again = self.is_remote && self.heard.is_none() && self.failures + 1 < CRASH_LOOP;
        self.heard = None;
        let ended = if was_up { Command::Down(cause) } else { Command::Ended(cause) };
        if !self.was_ever_ready && !may_try_again && !matches!(cause, Cause::Away | Cause::Left) {
            self.state = State::GivenUp;
            return Some(Command::GiveUp(cause));
        }
        if self.renews && cause == Cause::LoadFailed && !is_outdated {
            self.state = State::AwaitingChange;
            return Some(ended);
        }
        // A machine that went away does not show that the model fails.
        let pause = if self.is_leaving() || cause == Cause::Away || was_up && (self.has_served || self.on_trial) {
            Duration::ZERO
        } else {
            self.failures += 1;
            (FIRST_BACK_OFF * 2u32.saturating_pow(self.failures - 1)).min(LONGEST_BACK_OFF)
        };
        self.state = State::BackingOff { until: now + pause };
        Some(ended)
    }
}

#[cfg(test)]
mod tests {
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
        for (event, cause) in [(Event::LinkLost { is_watched: true }, Cause::Away), (Event::Leave, Cause::Left)] {
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
}
