//! The durations of batches that a worker measured before it was ready. A new server knows no others.

use crate::items::document::Document;
use crate::items::fields::{Item, evaluate};
use jitney_core::config::manifest::{DeploymentManifest, InputKind};
use jitney_core::learn::batch_cost::BatchCost;
use jitney_core::queue::group_key::GroupKey;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most sizes that are believed of one worker.
const MOST_SIZES: usize = 64;

/// The group key and the cost of the example that batches are tried with; `None` if they are unknown: then nothing can be
/// learned from these batches.
pub fn example(manifest: &DeploymentManifest) -> Option<(GroupKey, u64)> {
    let is_base64 = match manifest.input.kind {
        InputKind::Text | InputKind::Object => false,
        InputKind::Bytes | InputKind::Image => true,
        // The front has no example as arrays. All that is known is the method; a shape may join the key of requests.
        InputKind::Arrays => return evaluate(manifest, Item::Arrays(&[])).ok(),
    };
    let example = serde_json::to_vec(manifest.examples.first()?).ok()?;
    evaluate(manifest, Item::Document(Document::Json(&example), is_base64)).ok()
}

/// What the example costs that batches are tried with.
pub fn example_cost(manifest: &DeploymentManifest) -> Option<u64> {
    if manifest.cost.is_none() { Some(1) } else { example(manifest).map(|(_, cost)| cost) }
}

/// The example of each method, by the method's name; the name is empty if the deployment serves one.
pub fn examples<'a>(methods: impl Iterator<Item = &'a DeploymentManifest>) -> BTreeMap<String, (GroupKey, u64)> {
    let name = |manifest: &DeploymentManifest| manifest.method.as_ref().map_or("", |method| &*method.name).to_owned();
    let found = |manifest: &DeploymentManifest| match manifest.method {
        // Its batches stand for those of all groups.
        None => Some((GroupKey::default(), example_cost(manifest)?)),
        Some(_) => example(manifest),
    };
    methods.filter_map(|manifest| Some((name(manifest), found(manifest)?))).collect()
}

/// The batches that a worker measured before it was ready, with the group key of the example of each method.
pub fn measured(
    ready: &[u8],
    examples: &BTreeMap<String, (GroupKey, u64)>,
) -> Vec<(GroupKey, Vec<(BatchCost, Duration)>)> {
    #[derive(serde::Deserialize)]
    struct Ready {
        profile: BTreeMap<String, Vec<(usize, f64)>>,
    }
    let Ok(Ready { mut profile }) = serde_json::from_slice(ready) else { return Vec::new() };
    let of = |(name, (key, cost)): (&String, &(GroupKey, u64))| {
        let lasts = |(size, seconds)| Some((BatchCost::alike(size, *cost), Duration::try_from_secs_f64(seconds).ok()?));
        Some((key.clone(), profile.remove(name)?.into_iter().take(MOST_SIZES).filter_map(lasts).collect()))
    };
    examples.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_read_with_what_the_example_costs() {
        let ready = br#"{"load_s": 1.5, "warm_s": 0.1, "profile": {"": [[1, 0.01], [8, 0.03], [16, -1.0]]}}"#;
        let (ms, key) = (Duration::from_millis, GroupKey::default());
        let examples = BTreeMap::from([(String::new(), (key.clone(), 7))]);
        let batches = vec![(BatchCost::alike(1, 7), ms(10)), (BatchCost::alike(8, 7), ms(30))];
        assert_eq!(measured(ready, &examples), [(key, batches)]);
        assert!(measured(ready, &BTreeMap::new()).is_empty(), "the cost of the example is unknown");
        assert!(measured(b"{\"load_s\": 1.5}", &examples).is_empty(), "a worker that measured nothing");
    }

    fn method(name: &str, kind: &str, more: &serde_json::Value) -> DeploymentManifest {
        let text = serde_json::json!({ "kind": kind, "arrays": [], "schema": true });
        let mut fields = serde_json::json!({ "method": { "deployment": "clip", "name": name } });
        let more = more.as_object().unwrap().clone();
        fields.as_object_mut().unwrap().extend(more);
        crate::open_inference::tests::manifest(text.clone(), text, fields)
    }

    #[test]
    fn each_method_is_measured_by_its_own_example() {
        let by_size = serde_json::json!([{ "source": { "field": { "name": "size", "types": ["int"], "literals": [] } }, "edges": null }]);
        let square = serde_json::json!({ "group_by": by_size, "examples": [{ "size": 3 }] });
        let methods = [
            method("embed_text", "text", &serde_json::json!({ "examples": ["a"] })),
            method("embed_square", "object", &square),
            method("quiet", "text", &serde_json::json!({})),
        ];
        let ready = br#"{"profile": {"embed_text": [[1, 0.01]], "embed_square": [[1, 0.5]], "other": [[1, 1.0]]}}"#;
        let found = measured(ready, &examples(methods.iter()));
        let shown: Vec<_> = found.iter().map(|(key, batches)| (key.to_string(), batches[0].1.as_millis())).collect();
        assert_eq!(shown, [("embed_square, 3".to_owned(), 500), ("embed_text".to_owned(), 10)]);
    }
}
