//! Answers that become the items of the next stage, or one answer. Nothing is decoded or copied.

use crate::engine::program_values::Parts;
use crate::values::answer::{Answer, Failure, OutputPart, Timing};
use crate::values::call::Part;
use crate::values::chunks::Chunks;
use jitney_core::config::manifest::{DeploymentManifest, InputKind};
use jitney_core::tables::outcome::Outcome;
use smallvec::SmallVec;

/// The item of the stage of this manifest that the answer before it is. Arrays go by their names to the parameters of
/// `predict`, or one array to the only parameter.
pub(super) fn item(manifest: &DeploymentManifest, answer: SmallVec<[OutputPart; 1]>) -> Result<Parts, Failure> {
    let specs = &manifest.input.arrays;
    if manifest.input.kind != InputKind::Arrays || (specs.len() == 1 && answer.len() == 1) {
        return Ok(answer.into_iter().map(part).collect());
    }
    let mut answer: Vec<Option<OutputPart>> = answer.into_iter().map(Some).collect();
    let mut named = |name: &str| {
        let place = answer.iter().position(|part| part.as_ref().is_some_and(|part| &*part.name == name));
        let found = place.and_then(|place| answer[place].take());
        let missing = || Failure::new(Outcome::InvalidOutput, format!("the answer before it has no array {name}"));
        found.map(part).ok_or_else(missing)
    };
    specs.iter().map(|spec| named(&spec.name)).collect()
}

fn part(OutputPart { tag, tensor, data, .. }: OutputPart) -> Part {
    Part { tag, tensor, data: Chunks::from(data) }
}

/// One answer that has those of all members by their names. Of a member with several arrays each is called
/// `member.array`.
pub(super) fn together<'a>(answers: impl IntoIterator<Item = (&'a str, Answer)>) -> Answer {
    let mut whole = Answer { result: Ok(SmallVec::new()), timing: Timing::default(), tokens: None, end: None };
    for (member, answer) in answers {
        if answer.timing.total() >= whole.timing.total() {
            whole.timing = answer.timing;
        }
        whole.tokens = sum(whole.tokens, answer.tokens);
        match (&mut whole.result, answer.result) {
            (Ok(parts), Ok(more)) => parts.extend(more.into_iter().map(|part| named(member, part))),
            (Ok(_), Err(failure)) => whole.result = Err(failure),
            (Err(_), _) => {}
        }
    }
    whole
}

fn named(member: &str, part: OutputPart) -> OutputPart {
    let name = if part.name.is_empty() { member.into() } else { format!("{member}.{}", part.name).into() };
    OutputPart { name, ..part }
}

/// The tokens of two models; `None` if none counts them.
pub(super) fn sum(some: Option<u64>, more: Option<u64>) -> Option<u64> {
    some.into_iter().chain(more).reduce(u64::saturating_add)
}

/// Where the time of two stages went. The batch is that of the later one.
pub(super) fn after(first: Timing, then: Timing) -> Timing {
    let Timing { queue, batch, model, batch_size } = then;
    Timing { queue: first.queue + queue, batch: first.batch + batch, model: first.model + model, batch_size }
}
