//! One request from its tensors to the tensors of its answer, whichever way it came.

use super::request::{Parameters, Request, Wishes};
use super::{Tensor, check_wanted, join, split};
use crate::call::{Answer, Call, Failure, OutputPart, Tag, Timing};
use crate::deployment::{Deployment, Ticket};
use crate::heavy::COPIED;
use crate::held::Held;
use crate::later::ITEM_BYTES;
use jitney_core::request::Priority;
use std::time::Duration;

/// What the protocol around a request says of it.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// How long the client wants to wait.
    pub timeout: Option<Duration>,
    /// Its class, unless the request names one.
    pub priority: Priority,
    /// Rows that it may have.
    pub most_rows: usize,
}

/// A request that fits its model.
#[derive(Debug)]
pub struct Inference {
    calls: Vec<Call>,
    held: Option<Held>,
    outputs: Vec<Box<str>>,
    /// What the client calls it.
    pub id: String,
    /// The client's own parameters.
    pub kept: Parameters,
    /// See `Wishes`.
    pub empty_final_response: bool,
}

impl Inference {
    /// Splits a request into calls, or says why it cannot be computed.
    pub fn of(deployment: &Deployment, request: Request, around: Around) -> Result<Inference, Failure> {
        let Request { id, parameters, inputs, outputs } = request;
        let wishes = Wishes::of(parameters)?;
        check_wanted(&deployment.signature, &outputs)?;
        let timeout = [around.timeout, wishes.timeout].into_iter().flatten().min();
        let around = Around { timeout, priority: wishes.priority.unwrap_or(around.priority), ..around };
        let calls = split(&deployment.manifest, &deployment.signature, inputs, around)?;
        let held = deployment.hold(calls.len(), calls.iter().map(|call| call.bytes() as usize).sum())?;
        Ok(Inference { calls, held, outputs, id, kept: wishes.kept, empty_final_response: wishes.empty_final_response })
    }

    /// Computes it. Dropping the future cancels it.
    pub async fn run(self, deployment: &Deployment) -> Computed<'_> {
        let Inference { mut calls, held, outputs, .. } = self;
        let (answers, ticket) = match calls.pop() {
            Some(only) if calls.is_empty() => {
                let (answer, ticket) = deployment.open(only).await;
                (Ok(vec![answer]), ticket)
            }
            last => {
                calls.extend(last);
                deployment.open_many(calls).await
            }
        };
        Computed {
            timing: slowest(answers.as_deref().unwrap_or_default()),
            deployment,
            outputs,
            answers,
            ticket,
            _held: held,
        }
    }
}

/// The answers to a request, row by row. The request ends with its ticket.
#[derive(Debug)]
pub struct Computed<'a> {
    /// That of the row that took longest.
    pub timing: Timing,
    deployment: &'a Deployment,
    outputs: Vec<Box<str>>,
    /// A failure if nobody of them was let in.
    answers: Result<Vec<Answer>, Failure>,
    ticket: Ticket<'a>,
    _held: Option<Held>,
}

impl<'a> Computed<'a> {
    /// How much work it is to join them, in bytes that are parsed: arrays are copied.
    pub fn weight(&self) -> usize {
        let answers = self.answers.as_deref().unwrap_or_default();
        let parts = answers.iter().filter_map(|answer| answer.result.as_ref().ok()).flatten();
        let one = |part: &OutputPart| part.data.len() / if part.tag == Tag::Tensor { COPIED } else { 1 };
        answers.len() * ITEM_BYTES + parts.map(one).sum::<usize>()
    }

    /// The tensors of all rows.
    pub fn join(self) -> (Result<Vec<Tensor>, Failure>, Ticket<'a>) {
        let Computed { deployment, outputs, answers, mut ticket, .. } = self;
        let joined = answers.and_then(|answers| join(&deployment.signature, &outputs, answers));
        if let Err(failure) = &joined {
            ticket.fail(failure.outcome);
        }
        (joined, ticket)
    }
}

fn slowest(answers: &[Answer]) -> Timing {
    let timings = answers.iter().map(|answer| answer.timing);
    timings.max_by_key(|timing| timing.queue + timing.batch + timing.model).unwrap_or_default()
}
