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
/// The agent of a machine reports the end of a worker's process within this time after the worker's link has ended.
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
        was_up: bool,
    },
    /// It cannot be reached. Until then it may rejoin with the model that it has loaded.
    Away {
        until: Time,
        /// Its link was closed, and did not only fall silent: if it lives, it dials again soon.
        was_closed: bool,
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
        match &mut self.state {
            // Not only the worker is silent but its machine: the worker was noticed first.
            State::Away { until, was_closed: false } if was_watched && !is_watched => {
                *until = (*until).max(now + LEASE);
            }
            State::Away { until, .. } if is_watched && !was_watched => *until = (*until).min(now + REJOINS_WITHIN),
            _ => {}
        }
    }

    /// Until when its worker may rejoin before another one is started; `None` if it is not away.
    pub fn away_until(&self) -> Option<Time> {
        match self.state {
            State::Away { until, .. } => Some(until),
            _ => None,
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
            Event::Away => self.away(now, matches!(self.state, State::Unclear { .. })),
            Event::Rejoined if self.is_away() || matches!(self.state, State::BackingOff { .. }) => {
                (self.was_ever_ready, self.is_remote, self.leaves_for) = (true, true, None);
                (self.state, self.heard, self.is_doubtful) = (State::Up, Some(now), false);
                // Its new link says so if it serves, or if a trial begins.
                (self.has_served, self.on_trial) = (false, false);
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
            State::Unclear { until, .. } if now >= until => self.away(now, true),
            State::Away { until, .. } if now >= until => self.kill(now, Cause::Away),
            State::Starting { .. } | State::Up if self.heard.is_some_and(|at| now - at >= SILENT_AFTER) => {
                if self.is_remote { self.away(now, false) } else { self.kill(now, Cause::Silent) }
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
            State::Starting { .. } | State::Unclear { was_up: false, .. } | State::Away { .. } => self.kill(now, cause),
            _ => None,
        }
    }

    fn link_lost(&mut self, now: Time, is_watched: bool) -> Option<Command> {
        match self.state {
            State::Up | State::Starting { .. } if self.is_remote && is_watched => {
                self.state = State::Unclear { until: now + REPORTED_WITHIN, was_up: self.is_up() };
                None
            }
            State::Up | State::Starting { .. } if self.is_remote => self.away(now, true),
            // It was lost before, by its silence, and its connection ends only now.
            State::Unclear { .. } | State::Away { .. } => None,
            _ => self.kill(now, Cause::Died),
        }
    }

    /// A worker that has loaded its model keeps it for a while. One that has not is started elsewhere. If the machine is there, or the
    /// link was closed, the worker is stopped or dead, or dials again soon.
    fn away(&mut self, now: Time, was_closed: bool) -> Option<Command> {
        let longest = if was_closed || self.is_watched { REJOINS_WITHIN } else { LEASE };
        match self.state {
            // It was about to end, and its agent sees to that.
            State::Up | State::Unclear { was_up: true, .. } if self.is_leaving() => self.exited(now),
            State::Up | State::Unclear { was_up: true, .. } => {
                (self.state, self.heard) = (State::Away { until: now + longest, was_closed }, None);
                Some(Command::Down(Cause::Away))
            }
            State::Starting { .. } | State::Unclear { .. } => self.kill(now, Cause::Away),
            _ => None,
        }
    }

    fn kill(&mut self, now: Time, cause: Cause) -> Option<Command> {
        if !matches!(self.state, State::Starting { .. } | State::Up | State::Unclear { .. } | State::Away { .. }) {
            return None;
        }
        let was_up = matches!(self.state, State::Up | State::Unclear { was_up: true, .. });
        self.state = State::Dying { since: now, cause, was_up };
        Some(Command::Kill)
    }

    fn exited(&mut self, now: Time) -> Option<Command> {
        let (cause, was_up) = match self.state {
            State::Dying { cause, was_up, .. } => (cause, was_up),
            State::Starting { .. } | State::Unclear { was_up: false, .. } => (Cause::Died, false),
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
mod tests;
