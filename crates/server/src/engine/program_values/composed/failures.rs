//! What the client reads of a failure in one of the deployments that a composition calls.

use crate::engine::deployment::Deployment;
use crate::values::answer::Failure;
use jitney_core::tables::outcome::Outcome;
use std::time::Duration;

/// When a client should come back that was refused because of a later stage.
const COME_BACK: Duration = Duration::from_secs(1);

/// The failure of an item that a client sent: it is the client's, and says which deployment refused it.
pub(super) fn of_client(name: &str, failure: Failure) -> Failure {
    let named = |text: &str| format!("{name}: {text}");
    let (detail, model_text) = (named(&failure.detail), failure.model_text.as_deref().map(named));
    Failure { detail, model_text, stage_bytes: stage_bytes(name, &failure), ..failure }
}

fn stage_bytes(name: &str, failure: &Failure) -> u16 {
    let own = u16::try_from(name.len() + ": ".len()).unwrap_or(u16::MAX);
    failure.stage_bytes.saturating_add(own)
}

/// The failure of an item that another model made: nothing is wrong with what the client sent. What says nothing against the
/// item passes on.
pub(super) fn of_made(name: &str, failure: Failure) -> Failure {
    if matches!(failure.outcome.http_status(), 429 | 502 | 503 | 504) {
        return of_client(name, failure);
    }
    let text = format!("{name}: {}", failure.model_text.as_deref().unwrap_or(&failure.detail));
    let stage_bytes = stage_bytes(name, &failure);
    Failure { model_text: Some(text.clone()), stage_bytes, ..Failure::new(Outcome::ModelFailed, text) }
}

/// The refusal of a request because so many items of this composition are on their way.
pub(super) fn too_many(name: &str, running: usize) -> Failure {
    let detail =
        format!("{running} items of {name} are on their way: no more may be (max_queued_items); come back later");
    Failure { retry_after: Some(COME_BACK), ..Failure::new(Outcome::QueueFull, detail) }
}

/// Refuses what a later stage would refuse if it came from a client now: the work of the stages before it would be lost.
pub(super) fn check_later(stage: &Deployment) -> Result<(), Failure> {
    let (name, waiting) = (&stage.manifest.name, stage.waiting.amount());
    let (room, in_time) = (stage.manifest.options.max_queued_items, stage.published.most_waiting());
    if waiting < room.min(in_time) {
        return Ok(());
    }
    let (outcome, why) = if waiting >= room {
        (Outcome::QueueFull, "no more may wait (max_queued_items)")
    } else {
        stage.published.overloaded();
        (Outcome::WaitTooLong, "longer than a request may wait (max_wait_s)")
    };
    let detail = format!("{name}: {waiting} items wait for it: {why}; come back later");
    Err(Failure { retry_after: Some(COME_BACK), ..Failure::new(outcome, detail) })
}
