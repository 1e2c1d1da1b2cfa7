//! Which deployment uses which: what does not exist, and circles, are refused. Without a circle the last ones wait for none, so
//! that all of them can always go on.

use crate::engine::catalogue::nearest;
use std::collections::{BTreeMap, BTreeSet};

/// What each deployment uses, by name.
pub(crate) type Uses<'a> = BTreeMap<&'a str, &'a [String]>;

/// The targets of deployments that are used, by name, where they are known.
pub(crate) type Targets<'a> = BTreeMap<&'a str, &'a str>;

/// Refuses a use of what is not served, and a circle.
pub(crate) fn check(uses: &Uses<'_>, targets: &Targets<'_>) -> Result<(), String> {
    for (name, used) in uses {
        if let Some(unknown) = used.iter().find(|used| !uses.contains_key(used.as_str())) {
            let known: Vec<&str> = uses.keys().copied().filter(|known| known != name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let advice = match (targets.get(unknown.as_str()), nearest(unknown, uses.keys().copied())) {
                (Some(target), _) => format!("Name the target of {unknown} too: jitney serve ... {target}"),
                (None, Some(near)) if near != *name => format!("Did you mean {near}?"),
                _ => format!("Name the target of {unknown} too"),
            };
            return Err(format!(
                "{name} uses {unknown}, which this server does not serve; other deployments here are: {known}. {advice}"
            ));
        }
    }
    let mut done = BTreeSet::new();
    for &name in uses.keys() {
        if let Some(circle) = circle(uses, name, &mut Vec::new(), &mut done) {
            return Err(format!(
                "deployments use each other in a circle: {}; each would wait for itself",
                circle.join(" -> ")
            ));
        }
    }
    Ok(())
}

/// A circle that can be reached from `name`, from its first member to the same one.
fn circle<'a>(
    uses: &Uses<'a>,
    name: &'a str,
    path: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<&'a str>> {
    if let Some(begin) = path.iter().position(|&member| member == name) {
        return Some(path[begin..].iter().copied().chain([name]).collect());
    }
    if !done.insert(name) {
        return None;
    }
    path.push(name);
    let found = uses.get(name).into_iter().copied().flatten().find_map(|used| circle(uses, used, path, done));
    path.pop();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(uses: &[(&str, &[&str])]) -> Result<(), String> {
        with_targets(uses, &[])
    }

    fn with_targets(uses: &[(&str, &[&str])], targets: &[(&'static str, &'static str)]) -> Result<(), String> {
        let owned: Vec<(&str, Vec<String>)> =
            uses.iter().map(|(name, used)| (*name, used.iter().map(|&one| one.to_owned()).collect())).collect();
        let uses = owned.iter().map(|(name, used)| (*name, &used[..])).collect();
        check(&uses, &targets.iter().copied().collect())
    }

    #[test]
    fn a_circle_is_refused_with_its_path() {
        let refused = checked(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]).unwrap_err();
        assert!(refused.contains("b -> c -> b;"), "{refused}");
        let refused = checked(&[("a", &["b"]), ("b", &["a"])]).unwrap_err();
        assert!(refused.contains("a -> b -> a;"), "{refused}");
    }

    #[test]
    fn what_two_use_is_no_circle() {
        assert_eq!(
            checked(&[("top", &["left", "right"]), ("left", &["base"]), ("right", &["base"]), ("base", &[])]),
            Ok(())
        );
    }

    #[test]
    fn what_is_not_served_is_named_with_what_is() {
        let refused = checked(&[("search", &["embedder"]), ("ranker", &[])]).unwrap_err();
        assert!(refused.starts_with(
            "search uses embedder, which this server does not serve; other deployments here are: ranker."
        ));
    }

    #[test]
    fn the_advice_is_the_target_or_a_near_name_or_none() {
        let uses: &[(&str, &[&str])] = &[("search", &["embeder"]), ("embedder", &[]), ("ranker", &[])];
        assert!(checked(uses).unwrap_err().ends_with(". Did you mean embedder?"));
        let known = with_targets(uses, &[("embeder", "stages.py:Embeder")]).unwrap_err();
        assert!(known.ends_with("jitney serve ... stages.py:Embeder"), "{known}");
        let none = checked(&[("search", &["smollm2"]), ("ranker", &[])]).unwrap_err();
        assert!(none.ends_with(". Name the target of smollm2 too"), "{none}");
    }

    proptest::proptest! {
        /// Deployments that use only later ones, in any order of names, are accepted; one edge back makes a circle.
        #[test]
        fn graphs_without_a_circle_are_accepted(
            edges in proptest::collection::vec((0usize..8, 0usize..8), 0..20),
            back in proptest::prelude::any::<bool>(),
        ) {
            let names = ["d", "h", "a", "f", "c", "g", "b", "e"];
            let mut uses: BTreeMap<&str, Vec<String>> = names.iter().map(|&name| (name, Vec::new())).collect();
            let mut last = None;
            for (from, to) in edges.into_iter().filter(|(from, to)| from < to) {
                uses.get_mut(names[from]).unwrap().push(names[to].to_owned());
                last = Some((from, to));
            }
            if let Some((from, to)) = last.filter(|_| back) {
                uses.get_mut(names[to]).unwrap().push(names[from].to_owned());
            }
            let uses = uses.iter().map(|(name, used)| (*name, &used[..])).collect();
            let result = check(&uses, &BTreeMap::new());
            proptest::prop_assert_eq!(result.is_err(), back && last.is_some());
        }
    }
}
