//! Which deployments are served.

use crate::engine::deployment::Deployment;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What follows the path of a deployment in the route for many items; no name has a slash.
pub const MANY: &str = "/batch";

/// The deployments that are served at one moment. A catalogue never changes: a change is another catalogue in its place.
///
/// A request takes its deployment out of the catalogue once and keeps it until its answer is written. So a request that is
/// in flight ends with the version that it began with, whatever the catalogue says by then.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// By name; of each name one version.
    deployments: BTreeMap<String, Arc<Deployment>>,
    /// Those with a `route=`, by this path without its first slash.
    routes: BTreeMap<String, Arc<Deployment>>,
}

impl Catalogue {
    /// The deployment of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Deployment>> {
        self.deployments.get(name)
    }

    /// The deployment that is called at this path, given without its first slash: its name, or its `route=`.
    pub fn at(&self, path: &str) -> Option<&Arc<Deployment>> {
        self.deployments.get(path).or_else(|| self.routes.get(path))
    }

    /// Whether a deployment has this path as its own, for one item or for many.
    pub fn is_own_path(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.routes.contains_key(path) || path.strip_suffix(MANY).is_some_and(|path| self.routes.contains_key(path))
    }

    /// The deployments in the order of their names.
    pub fn deployments(&self) -> impl Iterator<Item = &Arc<Deployment>> {
        self.deployments.values()
    }

    /// The names in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.deployments.keys().map(String::as_str)
    }

    /// The path of a deployment, or of `more`, that was probably meant by a path that leads nowhere; without first slashes.
    pub fn nearest(&self, asked: &str, more: &[&str]) -> Option<String> {
        let near = |known: &str, asked: &str| within(known, asked).map(|edits| (edits, known.to_owned()));
        let one = || self.deployments.keys().chain(self.routes.keys()).map(String::as_str);
        let whole = one().chain(more.iter().copied()).filter_map(|known| near(known, asked));
        // A last segment that is not of a deployment: what stands before it is compared alone, or with that of many items.
        let below = asked.rsplit_once('/').into_iter().flat_map(|(head, last)| {
            let is_many = distance(&MANY[1..], last) <= 2;
            one()
                .filter_map(move |known| near(known, head))
                .map(move |(edits, known)| (edits + 1, if is_many { known + MANY } else { known }))
        });
        whole.chain(below).min().map(|(_, known)| known)
    }
}

impl FromIterator<Deployment> for Catalogue {
    fn from_iter<I: IntoIterator<Item = Deployment>>(deployments: I) -> Catalogue {
        let named = |deployment: Deployment| (deployment.manifest.name.clone(), Arc::new(deployment));
        let deployments: BTreeMap<_, _> = deployments.into_iter().map(named).collect();
        let own_path = |deployment: &Arc<Deployment>| {
            let route = deployment.manifest.route.as_deref()?;
            Some((route.strip_prefix('/').unwrap_or(route).to_owned(), deployment.clone()))
        };
        let routes = deployments.values().filter_map(own_path).collect();
        Catalogue { deployments, routes }
    }
}

/// The nearest of these names; `None` if all of them are too different.
pub(crate) fn nearest<'a>(asked: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.filter_map(|name| within(name, asked).map(|edits| (edits, name)));
    near.min().map(|(_, name)| name)
}

/// Edits from one name to the other, unless these are too many for a mistake.
fn within(known: &str, asked: &str) -> Option<usize> {
    Some(distance(known, asked)).filter(|&edits| edits <= 2 + asked.len() / 4)
}

/// Edits from one name to the other; long names are not measured.
fn distance(known: &str, asked: &str) -> usize {
    const LONGEST: usize = 64;
    if asked.len() > LONGEST {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=asked.len()).collect();
    for (line, a) in known.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, b) in asked.bytes().enumerate() {
            let cost = diagonal + usize::from(!a.eq_ignore_ascii_case(&b));
            diagonal = row[column + 1];
            row[column + 1] = cost.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[asked.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn names_are_compared_by_edits() {
        assert_eq!(distance("embedder", "embedder"), 0);
        assert_eq!(distance("embedder", "Embeder"), 1);
        assert_eq!(distance("embedder", ""), 8);
        assert_eq!(distance("a", &"b".repeat(65)), usize::MAX);
    }
}
