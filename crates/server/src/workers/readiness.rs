//! Whether the server is ready, from the states of its replicas.

use crate::engine::readiness::Readiness;
use jitney_core::supervisor::event::Cause;
use std::collections::BTreeMap;

/// The replicas of one deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replicas {
    /// Those that should exist.
    pub(crate) planned: usize,
    /// Those that are loaded and get batches. A replica that is being ended does not count.
    pub(crate) up: usize,
    /// Those with which the deployment counts as ready once it has been ready, as configured. It may be more than there should
    /// be now; then all of these are needed.
    pub(crate) min_ready: usize,
    /// It has none because it is not used, and gets one when a request comes.
    pub(crate) sleeps: bool,
    /// Why one of them is missing.
    pub(crate) failure: Option<Cause>,
    /// What one of them waits for, and how many of them wait.
    pub(crate) waits_for: Option<(String, usize)>,
}

/// The readiness of a server with these deployments; `was_ready` says that all replicas have been up together before.
///
/// The reasons are public: no key is needed to read them. So they name only the kind of a failure; the log has the text
/// of the exception.
/// `composed`: the deployments without replicas, and which others they call. `import_waits_for`: why no worker imports a
/// target yet.
pub(crate) fn readiness(
    deployments: &BTreeMap<String, Replicas>,
    composed: &BTreeMap<String, Vec<String>>,
    was_ready: bool,
    import_waits_for: Option<&str>,
) -> Readiness {
    let mut found = Readiness { ready: true, ..Readiness::default() };
    if deployments.is_empty() {
        let mut importing = Readiness::importing();
        importing.reasons.extend(import_waits_for.map(|why| format!("a worker {why}")));
        return importing;
    }
    for (name, replicas) in deployments {
        let needed = match replicas {
            _ if !was_ready => replicas.planned,
            Replicas { sleeps: true, .. } => 0,
            _ => replicas.min_ready.min(replicas.planned.max(1)),
        };
        if was_ready && replicas.sleeps {
            found.asleep.push(name.clone());
        }
        let is_ready = replicas.up >= needed;
        found.deployments.insert(name.clone(), is_ready);
        if !is_ready {
            let why = replicas.failure.map(|cause| format!(": {}; see the log", kind(cause))).unwrap_or_default();
            let waits = replicas.waits_for.as_ref().map(|(why, count)| match count {
                1 => format!(": {why}"),
                count => format!(": {}", why.replacen("waits for a place", &format!("waits for {count} places"), 1)),
            });
            let waits = waits.unwrap_or_default();
            found.reasons.push(format!("{name}: {} of {needed} replicas are ready{why}{waits}", replicas.up));
        }
    }
    for name in composed.keys() {
        let is_ready = is_composed_ready(name, composed, &found.deployments);
        found.deployments.insert(name.clone(), is_ready);
    }
    found.ready = found.reasons.is_empty();
    found
}

/// Whether all that this deployment calls is ready. No deployment calls itself, by any way.
fn is_composed_ready(name: &str, composed: &BTreeMap<String, Vec<String>>, ready: &BTreeMap<String, bool>) -> bool {
    match composed.get(name) {
        Some(called) => called.iter().all(|one| is_composed_ready(one, composed, ready)),
        None => ready.get(name) == Some(&true),
    }
}

fn kind(cause: Cause) -> &'static str {
    match cause {
        Cause::Died => "a worker ended",
        Cause::Hung => "a batch took too long",
        Cause::Silent => "a worker did not respond",
        Cause::LoadFailed => "load failed",
        Cause::LoadTimeout => "load took too long",
        Cause::Broken => "a model is broken",
        Cause::Renewed => "files changed",
        Cause::Away => "a machine cannot be reached",
        Cause::Left => "a machine goes away",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(replicas: Replicas) -> BTreeMap<String, Replicas> {
        BTreeMap::from([("a".to_owned(), replicas)])
    }

    fn whole(deployments: &BTreeMap<String, Replicas>, was_ready: bool, waits_for: Option<&str>) -> Readiness {
        readiness(deployments, &BTreeMap::new(), was_ready, waits_for)
    }

    #[test]
    fn what_the_front_carries_out_is_ready_with_all_that_it_calls() {
        let replicas = |up| Replicas { planned: 1, up, min_ready: 1, ..Replicas::default() };
        let composed = BTreeMap::from([
            ("chain".to_owned(), vec!["a".to_owned(), "both".to_owned()]),
            ("both".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
        ]);
        for up in [0, 1] {
            let deployments = BTreeMap::from([("a".to_owned(), replicas(1)), ("b".to_owned(), replicas(up))]);
            let found = readiness(&deployments, &composed, true, None);
            let ready = [found.is_ready_for("chain"), found.is_ready_for("both"), found.is_ready_for("a")];
            assert_eq!(ready, [up == 1, up == 1, true]);
        }
    }

    #[test]
    fn all_replicas_are_needed_first_and_some_of_them_later() {
        let replicas = Replicas { planned: 3, up: 2, min_ready: 2, sleeps: false, failure: None, waits_for: None };
        let at_first = whole(&one(replicas.clone()), false, None);
        assert_eq!((at_first.ready, at_first.is_ready_for("a")), (false, false));
        assert_eq!(at_first.reasons, ["a: 2 of 3 replicas are ready"]);
        let later = whole(&one(replicas), true, None);
        assert_eq!((later.ready, later.is_ready_for("a"), later.is_ready_for("b")), (true, true, false));
    }

    #[test]
    fn no_more_replicas_are_needed_than_there_should_be_now_and_one_at_least() {
        let ready = |planned, up| {
            whole(
                &one(Replicas { planned, up, min_ready: 3, sleeps: false, failure: None, waits_for: None }),
                true,
                None,
            )
            .ready
        };
        assert_eq!([ready(2, 2), ready(2, 1), ready(5, 3), ready(5, 2)], [true, false, true, false]);
        assert!(!ready(0, 0), "nothing answers");
    }

    #[test]
    fn what_a_replica_waits_for_is_said() {
        let why = "waits for a place: no agent has joined";
        let reasons = |count| {
            let waits_for = Some((why.to_owned(), count));
            let replicas = Replicas { planned: 2, up: 0, min_ready: 1, sleeps: false, failure: None, waits_for };
            whole(&one(replicas), false, None).reasons
        };
        assert_eq!(reasons(1), ["a: 0 of 2 replicas are ready: waits for a place: no agent has joined"]);
        assert_eq!(reasons(2), ["a: 0 of 2 replicas are ready: waits for 2 places: no agent has joined"]);
        let reasons = whole(&BTreeMap::new(), false, Some(why)).reasons;
        assert_eq!(reasons[1], "a worker waits for a place: no agent has joined");
    }

    #[test]
    fn a_deployment_that_sleeps_is_ready() {
        let asleep = Replicas { planned: 0, up: 0, min_ready: 1, sleeps: true, failure: None, waits_for: None };
        let readiness = whole(&one(asleep), true, None);
        assert_eq!((readiness.ready, readiness.asleep), (true, vec!["a".to_owned()]));
    }

    #[test]
    fn reasons_say_the_kind_of_a_failure_and_nothing_else() {
        let replicas = Replicas {
            planned: 1,
            up: 0,
            min_ready: 1,
            sleeps: false,
            failure: Some(Cause::LoadFailed),
            waits_for: None,
        };
        assert_eq!(
            whole(&one(replicas), true, None).reasons,
            ["a: 0 of 1 replicas are ready: load failed; see the log"]
        );
        assert_eq!(whole(&BTreeMap::new(), false, None).reasons, ["the targets are being imported"]);
    }
}
