//! One request from its tensors to the calls of its rows, whichever way it came.

use crate::open_inference::join::check_wanted;
use crate::open_inference::request::{InferRequest, Wishes};
use crate::open_inference::signature::Signature;
use crate::open_inference::split;
use crate::values::answer::Failure;
use crate::values::call::Call;
use jitney_core::config::manifest::DeploymentManifest;

/// A request that fits its model.
#[derive(Debug)]
pub struct Inference {
    /// One per row.
    pub calls: Vec<Call>,
    /// The outputs that the answer is to have; none are all.
    pub outputs: Vec<Box<str>>,
    /// What the client calls it.
    pub id: String,
    /// What its parameters ask for.
    pub wishes: Wishes,
}

impl Inference {
    /// Splits a request of at most `most_rows` rows into calls, or says why it cannot be computed.
    pub fn new(
        manifest: &DeploymentManifest,
        signature: &Signature,
        request: InferRequest,
        most_rows: usize,
    ) -> Result<Inference, Failure> {
        let InferRequest { id, parameters, inputs, outputs } = request;
        let wishes = Wishes::of(parameters)?;
        check_wanted(signature, &outputs)?;
        let calls = split::split(manifest, signature, inputs, most_rows)?;
        Ok(Inference { calls, outputs, id, wishes })
    }
}
