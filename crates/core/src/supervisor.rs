//! The life of one place for a worker: start, watch, restart with back-off, give up on the first load. Pure: the
//! motion side reports what happened and carries out what is commanded.

use crate::time::Time;
use std::time::Duration;

/// A worker that says nothing for this long, not even to a ping, is stopped or stuck.
pub const SILENT_AFTER: Duration = Duration::from_secs(7);
/// A process that was killed but does not end (stuck in a driver) is given up after this.
const ABANDON_AFTER: Duration = Duration::from_secs(5);
/// The first pause before a worker is started again after it died without having served anything.
const FIRST_BACK_OFF: Duration = Duration::from_millis(250);
/// The longest pause.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);
/// Deaths in a row without an answer in between that make a crash loop.
const CRASH_LOOP: u32 = 4;

/// Why a worker ended; a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It ended by itself, was killed from outside, or its link broke.
    Died,
    /// Its batch ran for too long.
    Hung,
    /// It stopped answering pings.
    Silent,
    /// It said that it cannot load its model.
    LoadFailed,
    /// It did not get ready in time.
    LoadTimeout,
    /// The files of its target have changed.
    Renewed,
}

impl Cause {
    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Cause::Died => "died",
            Cause::Hung => "hung",
            Cause::Silent => "silent",
            Cause::LoadFailed => "load_failed",
            Cause::LoadTimeout => "load_timeout",
            Cause::Renewed => "renewed",
        }
    }
}

/// What happened to the worker in this place. Whoever reports leaves out what comes from a process before the current
/// one, an abandoned one above all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its process runs. If it could not even be started, it has `Exited`.
    Spawned,
    /// Its link is up; from now on silence counts.
    Connected,
    /// Something came over its link.
    Heard,
    /// Its model is loaded and warm.
    Ready,
    /// It answered a batch.
    Served,
    /// A suspect begins to run alone in it, or has run. A death meanwhile is the suspect's doing and not a sign that the
    /// deployment is broken.
    Trial(bool),
    /// The files of its target have changed: another must take its place.
    Renew,
    /// It must be replaced, for this reason.
    Failed(Cause),
    /// Its process has ended.
    Exited,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Start a worker here.
    Spawn,
    /// Kill its process group.
    Kill,
    /// Tell it to finish what it holds and to end.
    End,
    /// The replica may get batches.
    Up,
    /// The replica is gone.
    Down(Cause),
    /// The model cannot be loaded at first start: end the server.
    GiveUp(Cause),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    BackingOff { until: Time },
    Starting { since: Time },
    Up,
    Dying { since: Time, cause: Cause, was_up: bool },
    GivenUp,
}

/// One place.
#[allow(clippy::struct_excessive_bools, reason = "independent facts of the worker that is in it")]
#[derive(Debug)]
pub struct Place {
    load_timeout: Duration,
    state: State,
    heard: Option<Time>,
    was_ever_ready: bool,
    has_served: bool,
    on_trial: bool,
    /// Its worker was made of files that have changed since.
    is_outdated: bool,
    failures: u32,
}

impl Place {
    /// How long loading and warming up may take.
    pub fn load_timeout(&self) -> Duration {
        self.load_timeout
    }

    /// A place whose first worker is to be started now.
    pub fn new(load_timeout: Duration) -> Place {
        let state = State::BackingOff { until: Time(0) };
        Place {
            load_timeout,
            state,
            heard: None,
            was_ever_ready: false,
            has_served: false,
            on_trial: false,
            is_outdated: false,
            failures: 0,
        }
    }

    /// Whether its workers keep dying without ever answering anything.
    pub fn is_crash_looping(&self) -> bool {
        self.failures >= CRASH_LOOP
    }

    /// Whether its worker is to be gone, and what it still says means nothing.
    pub fn is_dying(&self) -> bool {
        matches!(self.state, State::Dying { .. })
    }

    /// Whether its worker is ready.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Whether the last worker here was made of files that have changed since.
    pub fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// Whether no worker is here: the next one is not due yet, or none will come.
    pub fn is_vacant(&self) -> bool {
        matches!(self.state, State::BackingOff { .. } | State::GivenUp)
    }

    /// A worker that has imported its target is told what to load, and may take this long from now on.
    pub fn assigned(&mut self, now: Time, load_timeout: Duration) {
        self.load_timeout = load_timeout;
        if matches!(self.state, State::Starting { .. }) {
            self.state = State::Starting { since: now };
        }
    }

    /// Takes note of what happened.
    pub fn on(&mut self, now: Time, event: Event) -> Option<Command> {
        match event {
            Event::Spawned => {
                if matches!(self.state, State::Starting { .. }) {
                    self.state = State::Starting { since: now };
                }
                None
            }
            Event::Connected | Event::Heard => {
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
                self.state = State::Up;
                Some(Command::Up)
            }
            Event::Ready => None,
            Event::Renew => self.renew(now),
            Event::Failed(cause) => self.kill(now, cause),
            Event::Exited => self.exited(now),
        }
    }

    /// What the time alone commands.
    pub fn tick(&mut self, now: Time) -> Option<Command> {
        match self.state {
            State::BackingOff { until } if now >= until => {
                // From here on a worker is on its way: another tick must not start a second one.
                self.state = State::Starting { since: now };
                (self.heard, self.has_served, self.on_trial, self.is_outdated) = (None, false, false, false);
                Some(Command::Spawn)
            }
            State::Dying { since, .. } if now - since >= ABANDON_AFTER => self.exited(now),
            State::Starting { since } if now - since >= self.load_timeout => self.kill(now, Cause::LoadTimeout),
            State::Starting { .. } | State::Up if self.heard.is_some_and(|at| now - at >= SILENT_AFTER) => {
                self.kill(now, Cause::Silent)
            }
            _ => None,
        }
    }

    /// Whatever failed before may work with what is new.
    fn renew(&mut self, now: Time) -> Option<Command> {
        self.failures = 0;
        self.is_outdated = true;
        match self.state {
            State::BackingOff { .. } => {
                self.state = State::BackingOff { until: now };
                None
            }
            State::Starting { .. } => self.kill(now, Cause::Renewed),
            // It stays up until it has ended: what it holds is answered.
            State::Up => Some(Command::End),
            State::Dying { .. } | State::GivenUp => None,
        }
    }

    fn kill(&mut self, now: Time, cause: Cause) -> Option<Command> {
        if !matches!(self.state, State::Starting { .. } | State::Up) {
            return None;
        }
        self.state = State::Dying { since: now, cause, was_up: self.is_up() };
        Some(Command::Kill)
    }

    fn exited(&mut self, now: Time) -> Option<Command> {
        let (cause, was_up) = match self.state {
            State::Dying { cause, was_up, .. } => (cause, was_up),
            State::Starting { .. } => (Cause::Died, false),
            State::Up => (Cause::Died, true),
            State::BackingOff { .. } | State::GivenUp => return None,
        };
        // It was told to end, whether its link or its process was the first to go.
        let cause = if self.is_outdated && cause == Cause::Died { Cause::Renewed } else { cause };
        self.heard = None;
        if !self.was_ever_ready {
            self.state = State::GivenUp;
            return Some(Command::GiveUp(cause));
        }
        let pause = if self.is_outdated || was_up && (self.has_served || self.on_trial) {
            Duration::ZERO
        } else {
            self.failures += 1;
            (FIRST_BACK_OFF * 2u32.saturating_pow(self.failures - 1)).min(LONGEST_BACK_OFF)
        };
        self.state = State::BackingOff { until: now + pause };
        was_up.then_some(Command::Down(cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(0) + Duration::from_secs(seconds)
    }

    fn ready() -> Place {
        let mut place = Place::new(Duration::from_secs(60));
        assert_eq!(place.tick(at(0)), Some(Command::Spawn));
        place.on(at(0), Event::Spawned);
        place.on(at(1), Event::Connected);
        assert_eq!(place.on(at(2), Event::Ready), Some(Command::Up));
        place
    }

    #[test]
    fn a_worker_that_served_is_replaced_at_once() {
        let mut place = ready();
        place.on(at(3), Event::Served);
        assert_eq!(place.on(at(3), Event::Exited), Some(Command::Down(Cause::Died)));
        assert_eq!(place.tick(at(3)), Some(Command::Spawn));
    }

    #[test]
    fn deaths_without_an_answer_back_off_and_become_a_crash_loop() {
        let mut place = ready();
        for failure in 1..=CRASH_LOOP {
            assert_eq!(place.is_crash_looping(), failure > CRASH_LOOP);
            place.on(at(3), Event::Exited);
            assert_eq!(place.tick(at(3)), None);
            assert_eq!(place.tick(at(60)), Some(Command::Spawn));
            place.on(at(60), Event::Spawned);
        }
        assert!(place.is_crash_looping());
        place.on(at(61), Event::Ready);
        place.on(at(61), Event::Served);
        assert!(!place.is_crash_looping());
    }

    #[test]
    fn deaths_of_suspects_on_trial_are_no_crash_loop() {
        let mut place = ready();
        for _ in 0..2 * CRASH_LOOP {
            place.on(at(3), Event::Trial(true));
            assert_eq!(place.on(at(3), Event::Exited), Some(Command::Down(Cause::Died)));
            assert_eq!(place.tick(at(3)), Some(Command::Spawn), "the next suspect waits");
            place.on(at(3), Event::Ready);
        }
        assert!(!place.is_crash_looping());
    }

    #[test]
    fn a_worker_of_old_files_ends_in_order_and_another_takes_its_place_at_once() {
        let mut place = ready();
        for _ in 0..2 * CRASH_LOOP {
            assert_eq!(place.on(at(3), Event::Renew), Some(Command::End));
            assert!(place.is_up(), "what it holds is answered");
            assert_eq!(place.on(at(3), Event::Exited), Some(Command::Down(Cause::Renewed)));
            assert_eq!(place.tick(at(3)), Some(Command::Spawn));
            place.on(at(3), Event::Ready);
        }
        assert!(!place.is_crash_looping());
        // Its link may be gone before its process is.
        place.on(at(3), Event::Renew);
        assert_eq!(place.on(at(3), Event::Failed(Cause::Died)), Some(Command::Kill));
        assert_eq!(place.on(at(3), Event::Exited), Some(Command::Down(Cause::Renewed)));
        assert_eq!(place.tick(at(3)), Some(Command::Spawn));
        place.on(at(3), Event::Ready);
        // While it loads there is nothing to finish.
        place.on(at(4), Event::Exited);
        assert_eq!(place.tick(at(60)), Some(Command::Spawn));
        assert_eq!(place.on(at(61), Event::Renew), Some(Command::Kill));
        assert_eq!(place.on(at(61), Event::Exited), None);
        assert_eq!(place.tick(at(61)), Some(Command::Spawn));
    }

    #[test]
    fn what_could_not_be_loaded_is_tried_again_at_once_when_files_change() {
        let mut place = ready();
        for _ in 0..CRASH_LOOP {
            place.on(at(3), Event::Exited);
            assert_eq!(place.tick(at(60)), Some(Command::Spawn));
            place.on(at(60), Event::Failed(Cause::LoadFailed));
        }
        place.on(at(60), Event::Exited);
        assert!(place.is_crash_looping());
        assert_eq!(place.tick(at(60)), None);
        place.on(at(60), Event::Renew);
        assert!(!place.is_crash_looping());
        assert_eq!(place.tick(at(60)), Some(Command::Spawn));
    }

    #[test]
    fn silence_is_found_and_the_replica_is_only_gone_once_its_process_is() {
        let mut place = ready();
        place.on(at(4), Event::Heard);
        assert_eq!(place.tick(at(10)), None);
        assert_eq!(place.tick(at(11)), Some(Command::Kill));
        assert_eq!(place.tick(at(12)), None);
        assert_eq!(place.on(at(12), Event::Exited), Some(Command::Down(Cause::Silent)));
    }

    #[test]
    fn a_killed_process_that_does_not_end_is_abandoned() {
        let mut place = ready();
        assert_eq!(place.on(at(3), Event::Failed(Cause::Hung)), Some(Command::Kill));
        assert_eq!(place.on(at(3), Event::Failed(Cause::Died)), None, "it is dying already");
        assert_eq!(place.tick(at(8)), Some(Command::Down(Cause::Hung)));
    }

    #[test]
    fn loading_is_timed_from_the_assignment() {
        let mut place = Place::new(Duration::from_secs(60));
        place.tick(at(0));
        place.on(at(1), Event::Spawned);
        place.assigned(at(50), Duration::from_secs(600));
        assert_eq!(place.tick(at(649)), None);
        assert_eq!(place.tick(at(650)), Some(Command::Kill));
        assert!(!place.is_vacant());
        place.on(at(651), Event::Exited);
        assert!(place.is_vacant());
    }

    #[test]
    fn a_first_load_that_fails_ends_the_server() {
        let mut place = Place::new(Duration::from_secs(60));
        assert_eq!(place.tick(at(0)), Some(Command::Spawn));
        place.on(at(0), Event::Spawned);
        assert_eq!(place.tick(at(60)), Some(Command::Kill));
        assert_eq!(place.on(at(61), Event::Exited), Some(Command::GiveUp(Cause::LoadTimeout)));
        assert_eq!(place.tick(at(99)), None);
    }
}
