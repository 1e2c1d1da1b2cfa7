//! One request from its tensors to the tensors of its answer, whichever way it came.

use super::request::{Parameters, Request, Wishes};
use super::{Tensor, check_wanted, join, split};
use crate::call::{Answer, Call, Failure, Timing};
use crate::deployment::{Deployment, Ticket};
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
        Ok(Inference { calls, outputs, id, kept: wishes.kept, empty_final_response: wishes.empty_final_response })
    }

    /// Computes it. Dropping the future cancels it. The request ends with the ticket.
    pub async fn run(self, deployment: &Deployment) -> (Result<Vec<Tensor>, Failure>, Timing, Ticket<'_>) {
        let Inference { mut calls, outputs, .. } = self;
        let (answers, mut ticket) = match calls.pop() {
            Some(only) if calls.is_empty() => {
                let (answer, ticket) = deployment.open(only).await;
                (vec![answer], ticket)
            }
            last => {
                calls.extend(last);
                deployment.open_many(calls).await
            }
        };
        let timing = slowest(&answers);
        let joined = join(&deployment.signature, &outputs, answers);
        if let Err(failure) = &joined {
            ticket.fail(failure.outcome);
        }
        (joined, timing, ticket)
    }
}

fn slowest(answers: &[Answer]) -> Timing {
    let timings = answers.iter().map(|answer| answer.timing);
    timings.max_by_key(|timing| timing.queue + timing.batch + timing.model).unwrap_or_default()
}
