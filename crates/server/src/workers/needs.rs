//! What a worker needs of the place in which it runs.

use crate::link::agents::messages::Room;
use jitney_core::config::options::DeploymentOptions;
use std::collections::BTreeMap;
use std::fmt;

/// The engine that starts agents in a Ray cluster.
pub(crate) const RAY: &str = "ray";

/// Where workers may run apart from the machine of the front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// At agents that people or their tools start.
    pub agents: bool,
    /// In a Ray cluster.
    pub ray: bool,
}

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

/// An amount in thousandths, in which what a machine has and what its workers take is counted.
pub(crate) fn thousandths(amount: f64) -> u64 {
    (amount * 1000.0).round() as u64
}

/// What a worker needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Needs {
    pub(crate) place: Where,
    /// Devices that no other worker uses.
    pub(crate) devices: u32,
    pub(crate) cores: u32,
    /// What the machine must have of other things, by name, in thousandths: sums of parts are exact.
    pub(crate) resources: BTreeMap<String, u64>,
    /// Labels that the machine must have.
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether replicas of one deployment are on as many machines as possible.
    pub(crate) spread: bool,
    /// What a Ray cluster is asked for.
    pub(crate) ray: RayNeeds,
}

/// What a Ray cluster is asked for, in its own units.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub(crate) struct RayNeeds {
    pub(crate) num_cpus: f64,
    pub(crate) num_gpus: f64,
    pub(crate) resources: BTreeMap<String, f64>,
    pub(crate) labels: BTreeMap<String, String>,
    /// A JSON object.
    pub(crate) runtime_env: Option<String>,
    pub(crate) spread: bool,
}

impl RayNeeds {
    /// Those of a worker that imports its target.
    pub(crate) fn of_import() -> RayNeeds {
        RayNeeds { num_cpus: 1.0, spread: true, ..RayNeeds::default() }
    }
}

impl Needs {
    /// Those of a worker that imports its target, of which no options are known yet.
    pub(crate) fn of_import(elsewhere: Elsewhere) -> Needs {
        let place = if elsewhere == Elsewhere::default() { Where::Local } else { Where::Any };
        Needs { place, spread: true, ray: RayNeeds::of_import(), ..Needs::default() }
    }

    /// Those of a deployment with these options. Errors name the option, and what to do.
    pub(crate) fn new(options: &DeploymentOptions, elsewhere: Elsewhere) -> Result<Needs, String> {
        let place = match options.backend.as_deref() {
            Some("joined") if !elsewhere.agents => {
                return Err("backend=joined needs --workers-listen, where agents join".into());
            }
            Some("joined") => Where::Joined,
            Some(RAY) if !elsewhere.ray => {
                return Err("backend=ray needs the address of the Ray cluster: set ray_address to HOST:PORT or auto; where it is not installed: pip install 'ray>=2.49'".into());
            }
            None if elsewhere.ray => Where::Engine(RAY),
            Some(RAY) => Where::Engine(RAY),
            Some("any") => Where::Any,
            None if elsewhere.agents => Where::Any,
            _ => Where::Local,
        };
        let in_ray = place == Where::Engine(RAY);
        let gpus = options.num_gpus;
        if gpus.fract() != 0.0 && (!in_ray || gpus > 1.0) {
            return Err(format!(
                "num_gpus = {gpus}: write a whole number; a part of one device is possible with backend=ray"
            ));
        }
        if options.runtime_env.is_some() && !in_ray {
            return Err("runtime_env is for backend=ray; leave it out, or set ray_address".into());
        }
        if !options.node_labels.is_empty() && place == Where::Local {
            return Err("node_labels are for replicas on other machines; leave them out, or set workers_listen".into());
        }
        let amount = |text: &String| {
            let found = text.split_once('=').and_then(|(name, amount)| Some((name.to_owned(), amount.parse().ok()?)));
            let found =
                found.filter(|(name, amount): &(String, f64)| !name.is_empty() && *amount >= 0.001 && *amount <= 1e12);
            found.ok_or_else(|| format!("resources has {text:?}: write NAME=AMOUNT, such as tpu=4; at least 0.001"))
        };
        let label = |text: &String| {
            let found = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
            found.ok_or_else(|| format!("node_labels has {text:?}: write NAME=VALUE, such as zone=a"))
        };
        let resources: BTreeMap<String, f64> = options.resources.iter().map(amount).collect::<Result<_, _>>()?;
        let labels: BTreeMap<String, String> = options.node_labels.iter().map(label).collect::<Result<_, _>>()?;
        let ray = RayNeeds {
            num_cpus: options.num_cpus,
            num_gpus: gpus,
            resources: resources.clone(),
            labels: labels.clone(),
            runtime_env: options.runtime_env.clone(),
            spread: options.spread,
        };
        Ok(Needs {
            place,
            devices: gpus.ceil() as u32,
            cores: options.num_cpus.ceil() as u32,
            resources: resources.into_iter().map(|(name, amount)| (name, thousandths(amount))).collect(),
            labels,
            spread: options.spread,
            ray,
        })
    }

    /// Whether a worker may run on the machine of the front.
    pub(crate) fn may_be_local(&self) -> bool {
        matches!(self.place, Where::Local | Where::Any) && self.labels.is_empty()
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
    pub(crate) fn fit_resources(&self, left: &BTreeMap<String, u64>) -> bool {
        self.resources.iter().all(|(name, amount)| left.get(name).is_some_and(|left| left >= amount))
    }

    /// Whether a machine has the labels; those of nodes of a Ray cluster are the matter of Ray.
    pub(crate) fn fit_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        matches!(self.place, Where::Engine(_))
            || self.labels.iter().all(|(name, value)| labels.get(name) == Some(value))
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
        parts.extend(self.resources.iter().map(|(name, amount)| format!("{name}={}", *amount as f64 / 1000.0)));
        parts.extend(self.labels.iter().map(|(name, value)| format!("node label {name}={value}")));
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYWHERE: Elsewhere = Elsewhere { agents: true, ray: true };

    fn options(change: impl FnOnce(&mut DeploymentOptions)) -> DeploymentOptions {
        let mut options = DeploymentOptions::for_test();
        change(&mut options);
        options
    }

    #[test]
    fn with_a_ray_cluster_replicas_run_there_unless_the_options_say_where() {
        let place = |backend: Option<&str>, elsewhere| {
            Needs::new(&options(|one| one.backend = backend.map(str::to_owned)), elsewhere).map(|needs| needs.place)
        };
        assert_eq!(place(None, EVERYWHERE), Ok(Where::Engine(RAY)));
        assert_eq!(place(None, Elsewhere { agents: true, ray: false }), Ok(Where::Any));
        assert_eq!(place(Some("local"), EVERYWHERE), Ok(Where::Local));
        let error = place(Some("ray"), Elsewhere::default()).unwrap_err();
        assert!(error.contains("ray_address"), "{error}");
    }

    #[test]
    fn a_part_of_a_device_and_a_runtime_environment_are_for_ray() {
        let half = options(|one| one.num_gpus = 0.5);
        assert_eq!(Needs::new(&half, EVERYWHERE).map(|needs| (needs.devices, needs.ray.num_gpus)), Ok((1, 0.5)));
        assert!(Needs::new(&half, Elsewhere::default()).unwrap_err().starts_with("num_gpus = 0.5"));
        assert!(Needs::new(&options(|one| one.num_gpus = 1.5), EVERYWHERE).is_err());
        let environment = options(|one| one.runtime_env = Some("{}".into()));
        assert!(Needs::new(&environment, EVERYWHERE).is_ok());
        let error = Needs::new(&environment, Elsewhere::default()).unwrap_err();
        assert!(error.starts_with("runtime_env is for backend=ray"), "{error}");
    }
    #[test]
    fn what_a_worker_needs_is_refused_if_it_cannot_be_read() {
        for wrong in ["tpu", "tpu=four", "=4", "tpu=0", "tpu=-1", "tpu=nan", "tpu=inf"] {
            let error = Needs::new(&options(|one| one.resources = vec![wrong.into()]), EVERYWHERE).unwrap_err();
            assert!(error.contains("resources") && error.contains(wrong), "{error}");
        }
        let error = Needs::new(&options(|one| one.node_labels = vec!["zone".into()]), EVERYWHERE).unwrap_err();
        assert!(error.contains("node_labels") && error.contains("zone"), "{error}");
        let labelled = options(|one| one.node_labels = vec!["zone=a".into()]);
        let agents = Needs::new(&labelled, Elsewhere { agents: true, ray: false }).unwrap();
        assert!(!agents.may_be_local(), "this machine has no labels");
        assert!(Needs::new(&labelled, Elsewhere::default()).unwrap_err().contains("workers_listen"));
    }

    #[test]
    fn a_part_of_a_core_needs_a_whole_one() {
        let needs = Needs::new(&options(|one| one.num_cpus = 1.5), EVERYWHERE).unwrap();
        let fits = |cores| needs.fit(&Room { devices: vec![], cores });
        assert_eq!([1, 2].map(fits), [false, true]);
    }
}
