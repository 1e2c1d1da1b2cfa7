//! From manifests to a plan: which deployments there are and which replica of which goes where.

use crate::workers::needs::{Elsewhere, Needs};
use crate::workers::placement::routes::RESERVED;
use crate::workers::placement::{graph, routes, warm_up};
use jitney_core::config::manifest::{DeploymentManifest, Manifest};
use jitney_core::config::rules::Rules;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One replica to be loaded.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Assignment {
    /// Of which deployment.
    pub deployment: String,
    /// Which one of its replicas, from 0.
    pub replica: u32,
    /// The device it should use, as the user named it.
    pub device: Option<String>,
    /// Its share of the cores.
    pub cpu_threads: u32,
    /// How many of its first example fit into a batch by `max_batch_cost`, if that is set and the example says what it costs:
    /// the warm-up tries no more.
    pub most_items: Option<u64>,
    /// What its worker needs of its place.
    #[serde(skip)]
    pub(crate) needs: Needs,
}

/// What is to be served.
#[derive(Debug, Default)]
pub struct Plan {
    /// Every deployment with its methods, of which most have one, and its rules.
    pub deployments: BTreeMap<String, (Vec<Arc<DeploymentManifest>>, Rules)>,
    /// Per target, in the order of targets: its replicas.
    pub replicas: Vec<Vec<Assignment>>,
}

impl Plan {
    /// Checks the manifests against each other. `elsewhere` says where else workers may run. Errors name what, which value, and what to do.
    pub fn new(manifests: &[Manifest], cores: u32, elsewhere: Elsewhere) -> Result<Plan, String> {
        let mut plan = Plan::default();
        let all = || manifests.iter().flat_map(|manifest| &manifest.deployments);
        let has_model = |methods: &&[DeploymentManifest]| methods[0].composed.is_none();
        let models = by_deployment(manifests).filter(has_model);
        let total: u32 = models.map(|methods| methods[0].options.replica_bounds().1).sum();
        let cpu_threads = (cores / total.max(1)).max(1);
        check_names(manifests)?;
        for manifest in manifests {
            let mut replicas = Vec::new();
            for methods in by_deployment(std::slice::from_ref(manifest)) {
                let (name, options) = (methods[0].deployment(), &methods[0].options);
                let most_items = methods.iter().filter_map(most_items).min();
                let needs = Needs::new(options, elsewhere).map_err(|error| format!("{name}: {error}"))?;
                let rules = Rules::new(options).map_err(|error| format!("{name}: {error}"))?;
                let served = methods.iter().cloned().map(Arc::new).collect();
                if plan.deployments.insert(name.to_owned(), (served, rules)).is_some() {
                    let is_it = |one: &DeploymentManifest| one.deployment() == name;
                    let first = manifests.iter().find(|manifest| manifest.deployments.iter().any(is_it));
                    return Err(named_twice(name, &first.unwrap_or(manifest).target, &manifest.target));
                }
                if !has_model(&methods) {
                    continue;
                }
                replicas.extend((0..options.first_replicas()).map(|replica| Assignment {
                    deployment: name.to_owned(),
                    replica,
                    device: device(&options.devices, replica),
                    cpu_threads,
                    most_items,
                    needs: needs.clone(),
                }));
            }
            plan.replicas.push(replicas);
        }
        plan.check_openai_names()?;
        let uses = plan.deployments.iter().map(|(name, (methods, _))| (&**name, &methods[0].uses[..]));
        let targets = all().flat_map(|manifest| &manifest.use_targets);
        let targets = targets.map(|(name, target)| (&**name, &**target)).collect();
        graph::check(&uses.collect(), &targets)?;
        routes::check(all())?;
        Ok(plan)
    }

    /// By one name clients of the OpenAI API mean one deployment.
    fn check_openai_names(&self) -> Result<(), String> {
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        let methods = || self.deployments.values().flat_map(|(methods, _)| methods);
        let names: BTreeSet<&str> = methods().map(|manifest| &*manifest.name).collect();
        for manifest in methods() {
            let name = &manifest.name;
            let further = &manifest.options.openai_names;
            if manifest.task.is_none() && !further.is_empty() {
                return Err(format!(
                    "{name}: openai_names are for a deployment that says its task=; this one does not"
                ));
            }
            for called in further {
                let fits = (1..=256).contains(&called.len()) && !called.chars().any(char::is_control);
                if !fits {
                    return Err(format!("{name}: openai_names: {called:?} is not a name; 1 to 256 bytes are allowed"));
                }
                let owner = names.get(&**called).copied();
                if let Some(owner) = owner.or_else(|| owners.insert(called, name)) {
                    return Err(format!("{name}: openai_names: {called:?} is a name of {owner} already"));
                }
            }
        }
        Ok(())
    }

    /// Refuses options for deployments that do not exist. Names in `given` are exact; names in `spelled` are written as
    /// in environment variables. The value of each name is the place where its options were set, for the message.
    pub fn check_names(
        &self,
        given: &BTreeMap<String, String>,
        spelled: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        let names = || self.deployments.keys();
        let unknown = given.iter().find(|(name, _)| !self.deployments.contains_key(*name));
        let unknown =
            unknown.or_else(|| spelled.iter().find(|(text, _)| !names().any(|name| environment_name(name) == **text)));
        let Some((unknown, place)) = unknown else { return Ok(()) };
        let known: Vec<&str> = names().map(String::as_str).collect();
        Err(format!("{place}: options are set for {unknown}, but the deployments are: {}", known.join(", ")))
    }
}

/// A deployment's name as environment variables spell it: `JITNEY_<this>__OPTION`.
fn environment_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// Replicas take the devices in turn.
pub(crate) fn device(devices: &[String], replica: u32) -> Option<String> {
    devices.get(replica as usize % devices.len().max(1)).cloned()
}

fn most_items(deployment: &DeploymentManifest) -> Option<u64> {
    let (most, each) = (deployment.options.max_batch_cost?, warm_up::example_cost(deployment)?);
    Some((most / each.max(1)).max(1))
}

/// The manifests of each deployment: the methods of one stand next to each other.
fn by_deployment(manifests: &[Manifest]) -> impl Iterator<Item = &[DeploymentManifest]> {
    let is_same = |one: &DeploymentManifest, next: &DeploymentManifest| one.deployment() == next.deployment();
    manifests.iter().flat_map(move |manifest| manifest.deployments.chunk_by(is_same))
}

/// Refuses names that are none, and names that two deployments or methods have.
fn check_names(manifests: &[Manifest]) -> Result<(), String> {
    let mut known = BTreeMap::new();
    for Manifest { target, deployments } in manifests {
        for manifest in deployments {
            check_name(manifest.deployment())?;
            check_name(&manifest.name)?;
            if let Some(first) = known.insert(&*manifest.name, target) {
                return Err(named_twice(&manifest.name, first, target));
            }
        }
    }
    Ok(())
}

fn named_twice(name: &str, first: &str, second: &str) -> String {
    let places = if first == second { format!("in {first}") } else { format!("in {first} and in {second}") };
    format!("two deployments are called {name}, {places}; give one of them another name=")
}

fn check_name(name: &str) -> Result<(), String> {
    let fits = (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if !fits || name.starts_with('.') {
        return Err(format!(
            "a deployment cannot be called {name:?}: 1 to 64 of A-Z a-z 0-9 . _ - (not . first) are allowed; use name="
        ));
    }
    if RESERVED.contains(&name) {
        return Err(format!(
            "a deployment cannot be called {name:?}: this name belongs to the server itself; use name="
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_taken_in_turn() {
        let devices = ["cuda:0".to_owned(), "cuda:1".to_owned()];
        let taken: Vec<_> = (0..3).map(|replica| device(&devices, replica)).collect();
        assert_eq!(taken, [Some("cuda:0".into()), Some("cuda:1".into()), Some("cuda:0".into())]);
        assert_eq!(device(&[], 1), None);
    }

    #[test]
    fn the_methods_of_a_deployment_share_its_replicas() {
        let text = || serde_json::json!({ "kind": "text", "arrays": [], "schema": true });
        let method = |name: &str| {
            let full = format!("clip.{name}");
            let route = format!("/v1/clip/{name}");
            let more = serde_json::json!({
                "name": full, "route": route, "method": { "deployment": "clip", "name": name }, "options": { "replicas": 2 },
            });
            crate::open_inference::tests::manifest(text(), text(), more)
        };
        let manifest = |names: &[&str]| Manifest {
            target: "m.py".into(),
            deployments: names.iter().map(|name| method(name)).collect(),
        };
        let plan = Plan::new(&[manifest(&["embed", "count"])], 8, Elsewhere::default()).unwrap();
        let replicas: Vec<_> =
            plan.replicas[0].iter().map(|one| (&*one.deployment, one.replica, one.cpu_threads)).collect();
        assert_eq!(replicas, [("clip", 0, 4), ("clip", 1, 4)]);
        let (methods, _) = &plan.deployments["clip"];
        assert_eq!(methods.iter().map(|one| one.path()).collect::<Vec<_>>(), ["/v1/clip/embed", "/v1/clip/count"]);
        let mut joined = manifest(&["embed"]);
        joined.deployments[0].options.backend = Some("joined".into());
        let refused = Plan::new(&[joined.clone()], 8, Elsewhere::default()).unwrap_err();
        assert_eq!(refused, "clip: backend=joined needs --workers-listen, where agents join");
        assert!(Plan::new(&[joined], 8, Elsewhere { agents: true, ray: false }).is_ok());
        let refused = Plan::new(&[manifest(&["embed", "embed"])], 8, Elsewhere::default()).unwrap_err();
        assert!(refused.starts_with("two deployments are called clip.embed, in m.py; give"), "{refused}");
        let other = Manifest { target: "other.py".into(), ..manifest(&["count"]) };
        let refused = Plan::new(&[manifest(&["embed"]), other], 8, Elsewhere::default()).unwrap_err();
        assert!(refused.starts_with("two deployments are called clip, in m.py and in other.py; give"), "{refused}");
    }

    #[test]
    fn the_warm_up_is_told_what_a_batch_may_cost() {
        let text = serde_json::json!({ "kind": "text", "arrays": [], "schema": true });
        let manifest = |options| crate::open_inference::tests::manifest(text.clone(), text.clone(), options);
        assert_eq!(most_items(&manifest(serde_json::json!({ "options": { "max_batch_cost": 100 } }))), Some(100));
        assert_eq!(most_items(&manifest(serde_json::json!({}))), None);
    }

    #[test]
    fn options_for_nobody_are_refused_with_their_place() {
        let named = |name: &str, place: &str| BTreeMap::from([(name.to_owned(), place.to_owned())]);
        let refused = |given, spelled| Plan::default().check_names(&given, &spelled).unwrap_err();
        let said = "JITNEY_OTHER__REPLICAS: options are set for OTHER, but the deployments are: ";
        assert_eq!(refused(BTreeMap::new(), named("OTHER", "JITNEY_OTHER__REPLICAS")), said);
        let said = refused(named("other", "--set other.replicas"), BTreeMap::new());
        assert!(said.starts_with("--set other.replicas: options are set for other, "), "{said}");
        assert_eq!(Plan::default().check_names(&BTreeMap::new(), &BTreeMap::new()), Ok(()));
    }

    #[test]
    fn names_that_would_hide_a_route_or_leave_the_path_are_refused() {
        for name in ["metrics", "v1", "", "..", "a/b", "ä", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("text-to-image.v2_1").is_ok());
    }
}
