//! What follows a program's request until it has ended: its line in the access log and its span, if it has these.

use crate::base::access_log::line::{AccessLine, Ended};
use crate::base::traces::context::TraceContext;
use crate::base::traces::messages::attribute;
use crate::base::traces::notes::{Description, Passed, RequestTrace, TraceNote};
use crate::base::traces::why::facts::Lengths;
use crate::clients::server::session::Session;
use crate::engine::program_values::{Parts, Terms};
use crate::engine::server_state::ServerState;
use crate::values::answer::{Answer, Timing};
use crate::values::call_id::CallId;
use crate::values::metadata::FurtherMetadata;
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// If these are dropped before the request has ended, its program has left.
#[derive(Default)]
pub(super) struct CallFollowers {
    line: Option<Box<AccessLine>>,
    span: Option<Box<CallSpan>>,
}

/// The span of a request.
struct CallSpan {
    request: Arc<RequestTrace>,
    id: CallId,
    deployment: Box<str>,
    outcome: Outcome,
    items: usize,
    passed: Passed,
}

/// Begins them. If the request is traced, its terms say so to the deployments that compute it.
pub(super) fn begin(session: &Session, terms: &mut Terms, deployment: &str, items: &[Parts]) -> CallFollowers {
    let state = &*session.state;
    let span = begin_span(state, terms, deployment, items.len());
    let Some(mut line) = state.access_log.as_ref().and_then(|log| log.begin(session.ledger.peer)) else {
        return CallFollowers { line: None, span };
    };
    line.describe(&terms.id.text(), "programs", Some(deployment));
    let bytes: usize = items.iter().flatten().map(|part| part.data.len()).sum();
    line.request_bytes().store(bytes as u64, Ordering::Relaxed);
    CallFollowers { line: Some(line), span }
}

fn begin_span(state: &ServerState, terms: &mut Terms, deployment: &str, items: usize) -> Option<Box<CallSpan>> {
    let traces = state.traces.as_ref()?;
    let text = terms.further.as_ref().map_or("", |further| &*further.trace);
    let (parent, trace_state) = text.split_once('\n').unwrap_or((text, ""));
    let request = traces.begin(TraceContext::parse(parent), trace_state)?;
    let note = Some(TraceNote::new(request.clone()));
    terms.further = Some(Arc::new(FurtherMetadata { note, ..FurtherMetadata::default() }));
    let (id, deployment) = (terms.id.clone(), deployment.into());
    let (outcome, passed) = (Outcome::Cancelled, Passed::default());
    Some(Box::new(CallSpan { request, id, deployment, outcome, items, passed }))
}

impl CallFollowers {
    /// Counts bytes of the answer.
    pub(super) fn add_answer_bytes(&mut self, bytes: usize) {
        self.line.iter_mut().for_each(|line| line.add_answer_bytes(bytes));
    }

    /// Says how the request ended, as the metrics do.
    pub(super) fn end(mut self, answers: &[Answer]) {
        let (outcome, timing) = Answer::summary(answers);
        if let Some(span) = &mut self.span {
            let Timing { queue, batch, model, .. } = timing;
            let lengths = Lengths { queue, link: batch, predict: model };
            (span.outcome, span.passed) = (outcome, Passed { lengths, ..Passed::default() });
        }
        let Some(line) = &mut self.line else { return };
        line.end(Ended {
            deployment: None,
            outcome: Some(outcome),
            status: outcome.http_status(),
            items: answers.len(),
            batch_size: timing.batch_size.into(),
        });
        line.add_answer_bytes(answers.iter().map(Answer::bytes).sum());
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        let describe = || Description {
            request_id: self.id.text().as_ref().into(),
            whose: self.deployment.to_string(),
            name: format!("call {}", self.deployment),
            attributes: vec![
                attribute("rpc.system", "jitney"),
                attribute("rpc.method", &*self.deployment),
                attribute("jitney.protocol", "programs"),
                attribute("jitney.deployment", &*self.deployment),
                attribute("jitney.request.items", self.items as u64),
            ],
            is_error: self.outcome.http_status() >= 500,
        };
        self.request.end(&self.deployment, Some(self.outcome), self.passed, describe);
    }
}
