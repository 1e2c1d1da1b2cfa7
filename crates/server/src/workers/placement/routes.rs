//! Paths that deployments have in addition to their names. Each leads to one deployment, and never to a page.

use jitney_core::config::manifest::DeploymentManifest;
use std::collections::BTreeMap;

/// Names that no deployment may have: routes of the front, now or soon, and the table of server options in a file.
pub const RESERVED: &[&str] =
    &["livez", "readyz", "metrics", "config", "openapi.json", "docs", "live", "v1", "v2", "favicon.ico", "server"];

/// Bytes of a path.
const LONGEST: usize = 256;
/// Routes of the OpenAI API, whose prefix `/v1` is free otherwise.
const OPENAI: [&str; 5] = ["chat", "completions", "embeddings", "images", "models"];

/// Refuses paths that are not paths, that belong to the server, or that two deployments want.
pub(crate) fn check<'a>(deployments: impl Iterator<Item = &'a DeploymentManifest> + Clone) -> Result<(), String> {
    let mut owners: BTreeMap<String, &str> =
        deployments.clone().map(|deployment| (format!("/{}", deployment.name), &*deployment.name)).collect();
    for deployment in deployments {
        let (name, Some(route)) = (&*deployment.name, deployment.route.as_deref()) else { continue };
        check_one(route).map_err(|why| format!("{name}: route {route:?} {why}"))?;
        if let Some(owner) = owners.insert(route.to_owned(), name) {
            return Err(format!("{name}: route {route:?} leads to {owner} already; give {name} another route="));
        }
    }
    Ok(())
}

fn check_one(route: &str) -> Result<(), String> {
    let segments: Vec<&str> = route.split('/').skip(1).collect();
    let fits = |segment: &&str| {
        !segment.is_empty()
            && !segment.bytes().all(|byte| byte == b'.')
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte))
    };
    if !route.starts_with('/') || route.len() > LONGEST || !segments.iter().all(fits) {
        return Err(format!(
            "is not a path: write /a or /a/b, with A-Z a-z 0-9 . _ ~ - between slashes, at most {LONGEST} bytes"
        ));
    }
    if segments.last() == Some(&"batch") {
        return Err("ends in /batch, which is the path for many items; leave it away".to_owned());
    }
    let is_free = match segments[..] {
        ["v1", second, ..] => !OPENAI.contains(&second),
        _ => !RESERVED.contains(&segments[0]),
    };
    if is_free { Ok(()) } else { Err("belongs to the server itself; choose another path".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(name: &str, route: Option<&str>) -> DeploymentManifest {
        let text = serde_json::json!({ "kind": "text", "arrays": [], "schema": true });
        let manifest = crate::open_inference::tests::manifest(text.clone(), text, serde_json::json!({}));
        DeploymentManifest { name: name.into(), route: route.map(Into::into), ..manifest }
    }

    #[test]
    fn a_route_is_a_path_that_is_free() {
        for route in ["/v1/predict", "/a", "/a/b.c/d-e_f~g", "/api/v2", "/batch/a"] {
            assert_eq!(check_one(route), Ok(()), "{route}");
        }
        for route in [
            "",
            "/",
            "a",
            "a/b",
            "/a/",
            "//a",
            "/a b",
            "/a?b",
            "/a%20b",
            "/ä",
            "/../a",
            "/a/.",
            "/metrics",
            "/v2/a",
            "/v1",
            "/v1/models",
            "/v1/models/a",
            "/v1/embeddings",
            "/docs/a",
            "/a/batch",
            "/batch",
        ] {
            assert!(check_one(route).is_err(), "{route}");
        }
        assert!(check_one(&format!("/{}", "x".repeat(LONGEST))).is_err());
    }

    #[test]
    fn a_path_leads_to_one_deployment() {
        let plan = |routes: [Option<&str>; 2]| {
            let both = [deployment("one", routes[0]), deployment("two", routes[1])];
            check(both.iter())
        };
        assert_eq!(plan([Some("/v1/one"), Some("/v1/two")]), Ok(()));
        let taken = "two: route \"/v1/one\" leads to one already; give two another route=";
        assert_eq!(plan([Some("/v1/one"), Some("/v1/one")]), Err(taken.to_owned()));
        assert!(plan([Some("/two"), None]).unwrap_err().contains("leads to two already"));
        assert!(plan([None, Some("/two")]).unwrap_err().contains("leads to two already"));
    }
}
