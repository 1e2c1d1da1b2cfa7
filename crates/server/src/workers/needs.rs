//! What a worker needs of the place in which it runs.

use crate::link::agents::messages::Room;
use jitney_core::config::options::DeploymentOptions;
use std::collections::BTreeMap;
use std::fmt;

/// Where the workers of a deployment may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Where {
    /// On the machine of the front.
    Local,
    /// At an agent that people or their tools have started.
    Joined,
    /// At an agent that this engine has started.
    Engine(&'static str),
    /// On the machine of the front, as far as there is room, and else at an agent.
    #[default]
    Any,
}

/// What a worker needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Needs {
    pub(crate) place: Where,
    /// Devices that no other worker uses.
    pub(crate) devices: u32,
    pub(crate) cores: u32,
    pub(crate) resources: BTreeMap<String, f64>,
    /// Whether replicas of one deployment are on as many machines as possible.
    pub(crate) spread: bool,
}

impl Needs {
    /// Those of a worker that imports its target, of which no options are known yet.
    pub(crate) fn of_import(has_agents: bool) -> Needs {
        Needs { place: if has_agents { Where::Any } else { Where::Local }, spread: true, ..Needs::default() }
    }

    /// Those of a deployment with these options.
    pub(crate) fn new(options: &DeploymentOptions, has_agents: bool) -> Needs {
        let place = match options.backend.as_deref() {
            Some("joined") => Where::Joined,
            Some("ray") => Where::Engine("ray"),
            Some("any") => Where::Any,
            None if has_agents => Where::Any,
            _ => Where::Local,
        };
        let amount = |text: &String| {
            let (name, amount) = text.split_once('=')?;
            Some((name.to_owned(), amount.parse().ok()?))
        };
        Needs {
            place,
            devices: options.num_gpus.ceil() as u32,
            cores: options.num_cpus.floor() as u32,
            resources: options.resources.iter().filter_map(amount).collect(),
            spread: options.spread,
        }
    }

    /// Whether a worker may run on the machine of the front.
    pub(crate) fn may_be_local(&self) -> bool {
        matches!(self.place, Where::Local | Where::Any)
    }

    /// Whether an agent that this engine has started (empty: none) is one of those where a worker may run.
    pub(crate) fn fit_engine(&self, engine: &str) -> bool {
        match self.place {
            Where::Local => false,
            Where::Any => true,
            Where::Joined => engine.is_empty(),
            Where::Engine(name) => engine == name,
        }
    }

    /// Whether a place has enough.
    pub(crate) fn fit(&self, room: &Room) -> bool {
        room.devices.len() >= self.devices as usize && room.cores.max(1) >= self.cores
    }

    /// Whether a machine has what is counted for all of it.
    pub(crate) fn fit_resources(&self, left: &BTreeMap<String, f64>) -> bool {
        self.resources.iter().all(|(name, amount)| left.get(name).is_some_and(|left| left >= amount))
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match self.place {
            Where::Joined => parts.push("backend=joined".to_owned()),
            Where::Engine(name) => parts.push(format!("backend={name}")),
            Where::Local | Where::Any => {}
        }
        if self.cores > 0 {
            parts.push(format!("num_cpus={}", self.cores));
        }
        if self.devices > 0 {
            parts.push(format!("num_gpus={}", self.devices));
        }
        parts.extend(self.resources.iter().map(|(name, amount)| format!("{name}={amount}")));
        f.write_str(&parts.join(", "))
    }
}
