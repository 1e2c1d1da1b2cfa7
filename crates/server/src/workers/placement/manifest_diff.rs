//! Compares two manifests of one target. A worker that starts later imports its target again, and the file may have
//! changed since. Clients, engine and routes know only the first manifest.

use jitney_core::config::manifest::{DeploymentManifest, Manifest};
use serde_json::Value;

/// Parts that only people read.
const FOR_READING: [&str; 2] = ["doc", "examples"];

/// Parses the manifest that a worker sent. If it cannot be read, the worker has another version of jitney than this
/// server, because jitney was installed again while the server ran.
pub(crate) fn read(manifest: &[u8]) -> Result<Manifest, String> {
    serde_json::from_slice(manifest).map_err(|error| format!("a manifest is damaged: {error}; restart the server"))
}

/// Describes the first difference between two manifests: of one deployment, or with `all` of all deployments of the
/// target. `None` if clients cannot see a difference.
pub(crate) fn find(was: &Manifest, is: &Manifest, deployment: &str, all: bool) -> Option<String> {
    let names = |manifest: &Manifest| manifest.deployments.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    if all && names(was) != names(is) {
        return Some(format!(
            "the deployments of {} are {}, and were {}",
            is.target,
            names(is).join(", "),
            names(was).join(", ")
        ));
    }
    let its = |manifest: &Manifest| -> Vec<String> {
        manifest.deployments.iter().filter(|one| one.deployment() == deployment).map(|one| one.name.clone()).collect()
    };
    // A worker whose target has no such deployment at all reports that itself.
    let (known, new) = (its(was), its(is));
    if let (false, Some(missing)) = (new.is_empty(), known.iter().find(|name| !new.contains(name))) {
        return Some(format!("the method {missing} was removed"));
    }
    let pairs =
        was.deployments.iter().filter_map(|was| Some((was, is.deployments.iter().find(|is| is.name == was.name)?)));
    let mut found = pairs.filter(|(was, _)| all || was.deployment() == deployment).filter_map(|(was, is)| {
        let parts = differing(was, is, all);
        (!parts.is_empty()).then(|| format!("{}: {} changed", was.name, parts.join(", ")))
    });
    found.next()
}

/// The parts of a manifest, and the options, that differ.
fn differing(was: &DeploymentManifest, is: &DeploymentManifest, all: bool) -> Vec<String> {
    let (Ok(Value::Object(was)), Ok(Value::Object(is))) = (serde_json::to_value(was), serde_json::to_value(is)) else {
        return vec!["its description".into()];
    };
    let mut parts = Vec::new();
    for (part, value) in &was {
        if is.get(part) == Some(value) || (!all && FOR_READING.contains(&part.as_str())) {
            continue;
        }
        match (part.as_str(), value, &is[part]) {
            ("options", Value::Object(was), Value::Object(is)) => {
                parts.extend(
                    was.iter().filter(|(name, value)| is.get(*name) != Some(value)).map(|(name, _)| name.clone()),
                );
            }
            _ => parts.push(part.clone()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest(options: Value, more: Value) -> Manifest {
        let text = json!({ "kind": "text", "arrays": [], "schema": true });
        let mut more = more;
        more["options"] = options;
        let deployment = crate::open_inference::tests::manifest(text.clone(), text, more);
        Manifest { target: "m.py".into(), deployments: vec![deployment] }
    }

    #[test]
    fn what_others_can_tell_is_named() {
        let was = manifest(json!({}), json!({}));
        let said = |options, more, all| find(&was, &manifest(options, more), "m", all);
        assert_eq!(said(json!({}), json!({}), true), None);
        assert_eq!(said(json!({ "max_batch_size": 7 }), json!({}), false).unwrap(), "m: max_batch_size changed");
        assert_eq!(said(json!({}), json!({ "input": { "kind": "bytes" } }), false).unwrap(), "m: input changed");
        assert_eq!(said(json!({}), json!({ "doc": "new" }), false), None);
        assert_eq!(said(json!({}), json!({ "doc": "new" }), true).unwrap(), "m: doc changed");
    }

    #[test]
    fn a_method_that_was_removed_is_named() {
        let method =
            |name: &str| json!({ "name": format!("clip.{name}"), "method": { "deployment": "clip", "name": name } });
        let methods = |names: &[&str]| Manifest {
            target: "m.py".into(),
            deployments: names.iter().flat_map(|name| manifest(json!({}), method(name)).deployments).collect(),
        };
        let (one, both) = (methods(&["embed"]), methods(&["embed", "count"]));
        assert_eq!(find(&both, &one, "clip", false).unwrap(), "the method clip.count was removed");
        assert_eq!(find(&one, &both, "clip", false), None, "a further method changes nothing for clients");
        assert_eq!(find(&both, &methods(&[]), "clip", false), None, "the worker reports that");
    }

    #[test]
    fn another_deployment_of_the_target_matters_to_who_watches_it() {
        let (was, mut is) = (manifest(json!({}), json!({})), manifest(json!({}), json!({})));
        is.deployments.push(DeploymentManifest { name: "second".into(), ..is.deployments[0].clone() });
        assert_eq!(find(&was, &is, "m", false), None);
        assert_eq!(find(&was, &is, "m", true).unwrap(), "the deployments of m.py are m, second, and were m");
    }
}
