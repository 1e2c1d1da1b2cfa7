//! What happens to a worker, and what must be done about it.

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
    /// It said that its model can compute nothing any more.
    Broken,
    /// The files of its target have changed.
    Renewed,
    /// The link to its machine is lost, and the end of its process was not seen.
    Away,
    /// It was asked to end, because its machine goes away.
    Left,
}

impl Cause {
    /// Every one of them.
    pub const ALL: [Cause; 9] = [
        Cause::Died,
        Cause::Hung,
        Cause::Silent,
        Cause::LoadFailed,
        Cause::LoadTimeout,
        Cause::Broken,
        Cause::Renewed,
        Cause::Away,
        Cause::Left,
    ];

    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Cause::Died => "died",
            Cause::Hung => "hung",
            Cause::Silent => "silent",
            Cause::LoadFailed => "load_failed",
            Cause::LoadTimeout => "load_timeout",
            Cause::Broken => "broken",
            Cause::Renewed => "renewed",
            Cause::Away => "away",
            Cause::Left => "left",
        }
    }
}

/// What happened to the current worker of a slot. The caller leaves out what an earlier process still reports, such as one that
/// was abandoned.
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
    /// It answered an item for the first time. A batch that failed as a whole does not count.
    Served,
    /// A suspect begins to run alone in it (true), or has run (false). If the worker dies meanwhile, the suspect is the cause, and the
    /// death does not mean that the deployment is broken.
    Trial(bool),
    /// The files of its target have changed: a new worker must replace it.
    Renew,
    /// Its machine goes away: it ends when its batches are answered, and another worker replaces it.
    Leave,
    /// There is no room for the worker that was to be started.
    NoPlace,
    /// Its link is lost. `is_watched`: somebody is there who would report the end of its process.
    LinkLost {
        /// See above.
        is_watched: bool,
    },
    /// It cannot be reached, and nothing says that its process has ended.
    Away,
    /// A worker that kept its model through the loss of its link is here, and takes this slot.
    Rejoined,
    /// It must be replaced, for this reason.
    Failed(Cause),
    /// Its process has ended.
    Exited,
}

/// What the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Start a worker.
    Spawn,
    /// Kill its process group.
    Kill,
    /// Ask it to finish the batches that it has, and to end.
    End,
    /// The replica of this worker may get batches.
    Up,
    /// Nothing was heard of the replica for a while (true), or it is heard again (false). It gets nothing new meanwhile.
    Doubt(bool),
    /// The replica is lost.
    Down(Cause),
    /// A worker has ended whose replica was not up.
    Ended(Cause),
    /// The model cannot be loaded at first start: end the server.
    GiveUp(Cause),
}
