//! A request of a stream whose model answers in parts: a message for each part. Each says whether it is the last.

use crate::open_inference::join::part_tensors;
use crate::open_inference::messages::inference::infer_parameter::ParameterChoice;
use crate::open_inference::messages::inference::model_infer_response::InferOutputTensor;
use crate::open_inference::messages::inference::{InferParameter, ModelInferResponse, ModelStreamInferResponse};
use crate::open_inference::signature::Signature;
use crate::open_inference::tensor::Tensor;
use crate::protocols::grpc::frame;
use crate::protocols::reply::parts::form::PartsForm;
use crate::values::answer::{Failure, OutputPart, StreamEnd};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// The parameter of a response that says whether it is the last to its request.
const FINAL: &str = "triton_final_response";

/// Says in these parameters whether their response is the last.
pub(crate) fn set_final(parameters: &mut HashMap<String, InferParameter>, is_final: bool) {
    let parameter = InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(is_final)) };
    parameters.insert(FINAL.into(), parameter);
}

/// What a message says of a tensor, and its bytes in one piece. A slice of what others of its batch got too would keep
/// theirs until a slow client has taken its own, so it is copied if it `is_shared`.
pub(crate) fn output(mut tensor: Tensor, is_shared: bool) -> (InferOutputTensor, Bytes) {
    let output = InferOutputTensor {
        name: tensor.name.to_string(),
        datatype: tensor.datatype.name().into(),
        shape: tensor.shape.iter().map(|&axis| i64::try_from(axis).unwrap_or(i64::MAX)).collect(),
        ..InferOutputTensor::default()
    };
    let data = tensor.data.contiguous();
    (output, if is_shared { Bytes::copy_from_slice(data) } else { data.clone() })
}

/// A message that says why a request has no answer, or no more of it.
pub(crate) fn error_message(model_name: String, id: String, detail: String) -> ModelStreamInferResponse {
    let mut whose = ModelInferResponse { model_name, id, ..ModelInferResponse::default() };
    set_final(&mut whose.parameters, true);
    ModelStreamInferResponse { error_message: detail, infer_response: Some(whose) }
}

/// The messages that answer one request.
#[derive(Debug)]
pub(crate) struct PartMessages {
    pub(crate) signature: Arc<Signature>,
    /// The outputs that the client asked for; none are all.
    pub(crate) outputs: Vec<Box<str>>,
    /// What all messages repeat.
    pub(crate) response: ModelInferResponse,
    /// The client asked for an empty response after the last.
    pub(crate) has_empty_final: bool,
    /// Where a failure is left that ends the stream; `None` if it is a message.
    pub(crate) failure: Option<Arc<OnceLock<Failure>>>,
    /// The response that is written next: what follows says whether it is the last.
    pub(crate) next: Option<Vec<Tensor>>,
}

impl PartMessages {
    /// Appends a message with these outputs.
    fn write(&mut self, out: &mut Vec<u8>, tensors: Vec<Tensor>, is_final: bool) -> Result<(), Failure> {
        let mut response = std::mem::take(&mut self.response);
        (response.outputs, response.raw_output_contents) =
            tensors.into_iter().map(|tensor| output(tensor, false)).unzip();
        set_final(&mut response.parameters, is_final);
        let message =
            ModelStreamInferResponse { infer_response: Some(response), ..ModelStreamInferResponse::default() };
        let written = frame::append(out, &message);
        self.response = message.infer_response.unwrap_or_default();
        written
    }

    /// Writes what waits, which is not the last.
    fn write_next(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.next.take().map_or(Ok(()), |tensors| self.write(out, tensors, false))
    }
}

impl PartsForm for PartMessages {
    fn media(&self) -> &'static str {
        "application/grpc"
    }

    fn part(&mut self, out: &mut Vec<u8>, _item: usize, values: &[OutputPart]) -> Result<(), Failure> {
        self.write_next(out)?;
        let signature = self.signature.part.as_deref().unwrap_or(&self.signature);
        self.next = Some(part_tensors(signature, &self.outputs, values)?);
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.write_next(out)
    }

    fn end(&mut self, out: &mut Vec<u8>, _item: usize, answer: &[OutputPart], _end: &StreamEnd) -> Result<(), Failure> {
        if !answer.is_empty() {
            self.write_next(out)?;
            self.next = Some(part_tensors(&self.signature, &self.outputs, answer)?);
        }
        if self.has_empty_final {
            // Clients that ask for it take no outputs from a last response.
            self.write_next(out)?;
            return self.write(out, vec![], true);
        }
        self.next.take().map_or(Ok(()), |tensors| self.write(out, tensors, true))
    }

    fn failure(&mut self, out: &mut Vec<u8>, failure: &Failure, _request_id: &str) {
        // What cannot be written is left out: the failure says that the answer is not whole.
        let _ = self.write_next(out);
        if let Some(slot) = &self.failure {
            let _ = slot.set(failure.clone());
            return;
        }
        let ModelInferResponse { model_name, id, .. } = &self.response;
        // A text is never too long for a message.
        let _ = frame::append(out, &error_message(model_name.clone(), id.clone(), failure.detail.clone()));
    }

    fn comment(&self) -> &'static [u8] {
        b""
    }
}
