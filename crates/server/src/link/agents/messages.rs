//! What the front and an agent say to each other, as JSON tables.

use jitney_core::replicas::loss_history::Loss;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use tokio::sync::OwnedSemaphorePermit;

/// Most characters of a text of a peer that becomes part of a line of the log.
const LONGEST_TEXT: usize = 512;

/// A text of a peer that becomes part of a line of the log: it is one line, of bounded length.
pub(crate) fn one_line<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    Ok(text.chars().take(LONGEST_TEXT).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect())
}

/// An agent: what its machine has, and what runs there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Join {
    /// The version of jitney that it runs.
    pub version: String,
    /// Its machine.
    #[serde(deserialize_with = "one_line")]
    pub host: String,
    /// 128 random bits, as hex: the name of this process.
    #[serde(deserialize_with = "one_line")]
    pub agent: String,
    /// The address of the front that it has dialled, without the front's key.
    pub dialled: String,
    /// Room for workers, one each.
    pub places: Vec<Room>,
    /// What the whole machine has of other things, by name.
    pub resources: BTreeMap<String, f64>,
    /// What an operator says of the machine, by name.
    pub labels: BTreeMap<String, String>,
    /// The targets that it can import; empty: every target.
    pub targets: Vec<String>,
    /// The version of its Python.
    #[serde(deserialize_with = "one_line")]
    pub python: String,
    /// The engine that it was started by, such as `ray`; empty if people or their tools start it.
    #[serde(default)]
    pub engine: String,
    /// The workers that run.
    pub workers: Vec<Running>,
    /// Workers that ended recently: the front may not have heard about it.
    pub ended: Vec<Ended>,
    /// Whether the machine is about to go away.
    pub is_leaving: bool,
}

/// Room for one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// The devices that its worker may use, as in `cuda:1`.
    pub devices: Vec<String>,
    /// The cores that its worker may use.
    pub cores: u32,
}

/// A worker that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its name.
    pub id: String,
    /// Its place among those of its agent.
    pub place: usize,
    /// What it has imported.
    pub target: String,
}

/// A worker that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its name.
    pub id: String,
    /// How, in words.
    #[serde(deserialize_with = "one_line")]
    pub how: String,
    /// Whether something killed it: the kernel, an operator.
    pub was_killed: bool,
}

impl Ended {
    /// How the scheduler takes it.
    pub fn loss(&self) -> Loss {
        if self.was_killed { Loss::Killed } else { Loss::Crashed }
    }
}

/// The front: the agent has joined.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Joined {
    /// The version of jitney that the front runs.
    pub version: String,
}

/// The front: why the agent may not join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRefused {
    /// For the terminal.
    pub why: String,
    /// With this code the agent ends, because no retry helps. Without it, it tries again.
    pub exit: Option<i32>,
}

/// The front: a worker is to be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Its place among those of the agent.
    pub place: usize,
    /// What the worker must know, as JSON.
    pub spec: serde_json::Value,
}

/// The front: a worker is to be killed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kill {
    /// Its name.
    pub id: String,
    /// Whether it first writes where its threads are.
    pub stacks: bool,
}

/// An agent: the process of a worker runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Started {
    /// Its name.
    pub id: String,
}

/// An agent: whole lines that a worker has printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The name of the worker.
    pub id: String,
    /// To its standard output, or to standard error.
    pub is_stdout: bool,
    /// The lines, each with its end.
    pub lines: String,
}

/// An agent: where the threads of a worker are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stacks {
    /// The name of the worker.
    pub id: String,
    /// As the worker wrote it.
    pub text: String,
}

/// What an agent says after it has joined.
#[derive(Debug)]
pub enum Report {
    /// The process of a worker runs.
    Started(Started),
    /// A worker has ended.
    Ended(Ended),
    /// A worker has printed something. It keeps its room until it was taken.
    Output(Output, OwnedSemaphorePermit),
    /// Where the threads of a worker are.
    Stacks(Stacks),
    /// Its machine is about to go away.
    Leaving,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_a_peer_makes_no_further_line_of_the_log() {
        let forged = format!("host\n2026-01-01T00:00:00Z ERROR forged\x1b[31m{}", "x".repeat(1000));
        let ended = serde_json::json!({ "id": "w", "how": forged, "was_killed": false });
        let how = serde_json::from_value::<Ended>(ended).unwrap().how;
        assert!(how.starts_with("host\u{fffd}2026") && !how.contains(char::is_control), "{how}");
        assert_eq!(how.chars().count(), LONGEST_TEXT);
    }
}
