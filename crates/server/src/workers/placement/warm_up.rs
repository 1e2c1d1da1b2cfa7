//! What a worker measured before it was ready: the first that is known of what batches take.

use crate::items::document::Document;
use crate::items::fields::{Item, evaluate};
use jitney_core::config::manifest::{DeploymentManifest, InputKind};
use jitney_core::learn::batch_cost::BatchCost;
use std::time::Duration;

/// Most sizes that are believed of one worker.
const MOST_SIZES: usize = 64;

/// What the example costs that batches are tried with; `None` if nobody can say, so that nothing can be learned from them.
pub fn example_cost(manifest: &DeploymentManifest) -> Option<u64> {
    if manifest.cost.is_none() {
        return Some(1);
    }
    let example = serde_json::to_vec(manifest.examples.first()?).ok()?;
    let is_base64 = match manifest.input.kind {
        InputKind::Text | InputKind::Object => false,
        InputKind::Bytes | InputKind::Image => true,
        InputKind::Arrays => return None,
    };
    evaluate(manifest, Item::Document(Document::Json(&example), is_base64)).ok().map(|(_, cost)| cost)
}

/// The batches that the last word of a worker about itself tells of.
pub fn measured(ready: &[u8], example_cost: Option<u64>) -> Vec<(BatchCost, Duration)> {
    #[derive(serde::Deserialize)]
    struct Ready {
        profile: Vec<(usize, f64)>,
    }
    let (Ok(Ready { profile }), Some(cost)) = (serde_json::from_slice(ready), example_cost) else { return Vec::new() };
    let lasts = |(size, seconds)| Some((BatchCost::alike(size, cost), Duration::try_from_secs_f64(seconds).ok()?));
    profile.into_iter().take(MOST_SIZES).filter_map(lasts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_read_with_what_the_example_costs() {
        let ready = br#"{"load_s": 1.5, "warm_s": 0.1, "profile": [[1, 0.01], [8, 0.03], [16, -1.0]]}"#;
        let ms = Duration::from_millis;
        assert_eq!(measured(ready, Some(7)), [(BatchCost::alike(1, 7), ms(10)), (BatchCost::alike(8, 7), ms(30))]);
        assert!(measured(ready, None).is_empty(), "nobody knows what it costs");
        assert!(measured(b"{\"load_s\": 1.5}", Some(1)).is_empty(), "a worker that measured nothing");
    }
}
