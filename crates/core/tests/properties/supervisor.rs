//! The workers of one slot under random events: it never runs two processes and is never stuck.

use jitney_core::supervisor::event::{Cause, Command, Event};
use jitney_core::supervisor::worker_life::WorkerLife;
use jitney_core::time::Time;
use proptest::prelude::*;
use std::time::Duration;

const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
const CAUSES: [Cause; 5] = [Cause::Hung, Cause::Silent, Cause::LoadFailed, Cause::Died, Cause::Broken];

#[derive(Clone, Debug)]
enum Op {
    Pass(Duration),
    Spawned,
    Say(u8),
    Fail(usize),
    Exit,
    Renew,
    Leave,
    LinkLost(bool),
    Away,
    Rejoin,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0u64..9_000).prop_map(|ms| Op::Pass(Duration::from_millis(ms))),
        1 => (9_000u64..90_000).prop_map(|ms| Op::Pass(Duration::from_millis(ms))),
        6 => Just(Op::Spawned),
        12 => (0u8..4).prop_map(Op::Say),
        3 => (0usize..CAUSES.len()).prop_map(Op::Fail),
        4 => Just(Op::Exit),
        1 => Just(Op::Renew),
        1 => Just(Op::Leave),
        2 => any::<bool>().prop_map(Op::LinkLost),
        1 => Just(Op::Away),
        3 => Just(Op::Rejoin),
    ];
    prop::collection::vec(op, 1..80)
}

/// A slot, and what the caller knows of it.
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
struct Watched {
    life: WorkerLife,
    now: Time,
    /// A worker was asked for and has not ended.
    runs: bool,
    up: bool,
    was_up: bool,
    is_doubtful: bool,
    given_up: bool,
    is_remote: bool,
    killed_at: Option<Time>,
}

impl Watched {
    fn new(is_remote: bool) -> Watched {
        let life = WorkerLife::new(LOAD_TIMEOUT, false);
        Watched {
            life,
            now: Time(0),
            runs: false,
            up: false,
            was_up: false,
            is_doubtful: false,
            given_up: false,
            is_remote,
            killed_at: None,
        }
    }

    fn carry_out(&mut self, command: Option<Command>) {
        let Some(command) = command else { return };
        assert!(!self.given_up, "{command:?} after giving up");
        match command {
            Command::Spawn => {
                assert!(!self.runs, "a second worker");
                self.runs = true;
                self.life.placed(self.is_remote);
            }
            Command::End => assert!(self.runs && self.up, "ended what is not up"),
            Command::Kill => {
                assert!(self.runs && self.killed_at.is_none(), "killed what is not there, or twice");
                self.killed_at = Some(self.now);
            }
            Command::Up => {
                assert!(self.runs && !self.up && self.killed_at.is_none(), "up twice or without a worker");
                (self.up, self.was_up, self.is_doubtful) = (true, true, false);
            }
            Command::Doubt(is_doubtful) => {
                assert!(self.is_remote && self.up && is_doubtful != self.is_doubtful, "{is_doubtful} twice");
                self.is_doubtful = is_doubtful;
            }
            Command::Down(_) => {
                assert!(self.up, "down without having been up");
                (self.up, self.runs, self.killed_at) = (false, self.life.is_away(), None);
            }
            Command::Ended(_) => {
                assert!(!self.up, "ended without being down");
                (self.runs, self.killed_at) = (false, None);
            }
            Command::GiveUp(_) => {
                assert!(!self.was_up, "gave up although it was ready once");
                (self.runs, self.given_up, self.killed_at) = (false, true, None);
            }
        }
        // Of a link that is lost it is not yet known whether the process has ended.
        assert!(!self.life.is_up() || self.up && self.killed_at.is_none());
        assert!(self.is_remote || self.life.is_up() == (self.up && self.killed_at.is_none()));
    }

    fn tick(&mut self) {
        let command = self.life.tick(self.now);
        // Five seconds after the kill the process is abandoned, and with it whatever it still says.
        if self.killed_at.is_some_and(|at| self.now - at >= Duration::from_secs(5)) {
            self.runs = false;
            self.killed_at = None;
        }
        self.carry_out(command);
        for _ in 0..3 {
            let command = self.life.tick(self.now);
            self.carry_out(command);
        }
    }

    fn exit(&mut self) {
        if self.runs {
            let command = self.life.apply(self.now, Event::Exited);
            (self.runs, self.killed_at) = (false, None);
            self.carry_out(command);
            assert!(!self.up, "up although the worker has ended");
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Pass(length) => {
                self.now = self.now + length;
                self.tick();
            }
            Op::Spawned if self.runs => {
                let command = self.life.apply(self.now, Event::Spawned);
                self.carry_out(command);
            }
            Op::Say(n) if self.runs => {
                let event = [Event::Connected, Event::Heard, Event::Ready, Event::Served][n as usize];
                let command = self.life.apply(self.now, event);
                self.carry_out(command);
            }
            Op::Fail(n) => {
                let command = self.life.apply(self.now, Event::Failed(CAUSES[n]));
                self.carry_out(command);
            }
            Op::Exit => self.exit(),
            Op::Renew => {
                let command = self.life.apply(self.now, Event::Renew);
                self.carry_out(command);
            }
            Op::Leave | Op::LinkLost(_) | Op::Away if self.runs => {
                let event = match *op {
                    Op::LinkLost(is_watched) => Event::LinkLost { is_watched },
                    Op::Away if self.is_remote => Event::Away,
                    _ => Event::Leave,
                };
                let command = self.life.apply(self.now, event);
                self.carry_out(command);
            }
            Op::Rejoin if self.life.is_away() => {
                let command = self.life.apply(self.now, Event::Rejoined);
                self.carry_out(command);
            }
            Op::Spawned | Op::Say(_) | Op::Leave | Op::LinkLost(_) | Op::Away | Op::Rejoin => {}
        }
    }
}

/// From its exit to the next start, on a grid that is finer than every step of the back-off.
fn pause(life: &mut WorkerLife, since: Time) -> (Duration, Time) {
    for step in 0..=600 {
        let waited = Duration::from_millis(50 * step);
        if life.tick(since + waited) == Some(Command::Spawn) {
            return (waited, since + waited);
        }
    }
    panic!("not started within 30 s of its end");
}

proptest! {
    #![proptest_config(crate::cases(300))]

    #[test]
    fn a_place_runs_one_worker_alternates_up_and_down_and_gives_up_only_before_the_first_ready(ops in ops(), is_remote in any::<bool>()) {
        let mut watched = Watched::new(is_remote);
        for op in &ops {
            watched.apply(op);
        }
    }

    #[test]
    fn from_every_state_silence_and_time_lead_to_a_new_worker_or_to_giving_up(ops in ops(), is_remote in any::<bool>()) {
        let mut watched = Watched::new(is_remote);
        for op in &ops {
            watched.apply(op);
        }
        // A worker that is up and was never heard of is only found by its exit: it shows nothing else.
        if watched.up {
            watched.exit();
        }
        let before = watched.runs && watched.killed_at.is_none();
        let mut is_moving = watched.given_up;
        for _ in 0..200 {
            watched.now = watched.now + Duration::from_secs(1);
            let command = watched.life.tick(watched.now);
            is_moving |= matches!(command, Some(Command::Spawn | Command::GiveUp(_)));
        }
        prop_assert!(is_moving, "stuck for 200 s; a worker was there: {}", before);
    }

    #[test]
    fn pauses_grow_until_a_worker_has_served_and_end_at_thirty_seconds(
        lives in prop::collection::vec((any::<bool>(), prop::bool::weighted(0.2)), 1..20),
    ) {
        let mut life = WorkerLife::new(LOAD_TIMEOUT, false);
        let mut now = pause(&mut life, Time(0)).1;
        life.apply(now, Event::Spawned);
        life.apply(now, Event::Ready);
        let (mut last, mut deaths) = (Duration::ZERO, 0);
        for (ready, served) in lives {
            if ready {
                life.apply(now, Event::Ready);
            }
            let has_served = life.is_up() && served;
            if has_served {
                life.apply(now, Event::Served);
                (last, deaths) = (Duration::ZERO, 0);
                prop_assert!(!life.is_crash_looping());
            } else {
                deaths += 1;
            }
            life.apply(now, Event::Exited);
            let (waited, started) = pause(&mut life, now);
            prop_assert!(waited >= last && waited <= Duration::from_secs(30));
            prop_assert_eq!(waited.is_zero(), has_served, "only a worker that served is replaced at once");
            prop_assert_eq!(life.is_crash_looping(), deaths >= 4);
            (last, now) = (waited, started);
            life.apply(now, Event::Spawned);
        }
    }
}
