//! `ModelInfer`: a message as tensors, and tensors as a message.

use crate::base::ledger::Account;
use crate::base::offload;
use crate::base::offload::COPIED;
use crate::engine::deployment::Deployment;
use crate::engine::request::{Answers, RequestItems};
use crate::engine::server_state::ServerState;
use crate::engine::{request, room};
use crate::items::arrays::shape;
use crate::open_inference::datatype::Datatype;
use crate::open_inference::infer::Inference;
use crate::open_inference::join::join;
use crate::open_inference::messages::inference::infer_parameter::ParameterChoice;
use crate::open_inference::messages::inference::model_infer_request::InferInputTensor;
use crate::open_inference::messages::inference::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse,
};
use crate::open_inference::request::{InferRequest, Parameter, Parameters, check_of_tensor};
use crate::open_inference::signature::Signature;
use crate::open_inference::strings;
use crate::open_inference::tensor::{Shape, Tensor, quoted, shown};
use crate::protocols::exchange::{Decoded, Dialect, RefusedBody, Written};
use crate::protocols::grpc::frame;
use crate::protocols::grpc::frame::{MessagePieces, PlainMessage, tear};
use crate::protocols::grpc::head;
use crate::protocols::grpc::head::longest_allowed;
use crate::protocols::grpc::parts::{PartMessages, output, set_final};
use crate::protocols::grpc::reply;
use crate::protocols::open_inference::describe;
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::payload::Reply;
use crate::protocols::reply::problem::ProblemForm;
use crate::protocols::request::compression::Coding;
use crate::values::answer::{Answer, Failure, Timing};
use crate::values::chunks::Chunks;
use crate::values::tensor::Dtype;
use bytes::Bytes;
use hyper::header::HeaderMap;
use jitney_core::tables::outcome::Outcome;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The number of `raw_output_contents`.
const RAW_OUTPUTS: u32 = 6;

/// The number of `infer_response` in the messages of a stream.
const INFER_RESPONSE: u32 = 2;

/// A request of the protocol over gRPC.
pub(crate) struct GrpcInfer<'a> {
    pub(crate) state: &'a ServerState,
    /// The account of its connection for what is being received.
    pub(crate) received: &'a Account,
    /// `None` unless it is one of a stream: its body is then one message, and its answer a field of others.
    pub(crate) of_stream: Option<&'a OfStream>,
}

/// A request among others of a stream.
#[derive(Debug, Default)]
pub(crate) struct OfStream {
    /// Which request it is, once that is known.
    pub(crate) whose: OnceLock<ModelAndId>,
    /// Where a failure in the middle of an answer is left if it ends the stream; `None` if it is a message.
    pub(crate) failure: Option<Arc<OnceLock<Failure>>>,
}

/// The model and the id of a request, which an error in a stream repeats: clients keep several requests in the air.
#[derive(Debug, Default)]
pub(crate) struct ModelAndId {
    pub(crate) model: String,
    pub(crate) id: String,
}

impl ModelAndId {
    /// Those of a message; empty if it cannot be decoded.
    pub(crate) fn of_message(message: Chunks) -> ModelAndId {
        let head = tear(message).map(|(head, _)| head).unwrap_or_default();
        let ModelInferRequest { model_name: model, id, .. } = ModelInferRequest::decode(&head[..]).unwrap_or_default();
        ModelAndId { model, id }
    }
}

/// A request as a message.
pub(crate) struct InferMessage {
    request: ModelInferRequest,
    raw: Vec<Chunks>,
    bytes: usize,
}

/// What an answer repeats, and which outputs it has.
pub(crate) struct GrpcAsked {
    signature: Arc<Signature>,
    outputs: Vec<Box<str>>,
    /// The fields of the answer that are known before the outputs.
    response: ModelInferResponse,
    /// The answer is a message for each part.
    is_in_parts: bool,
    has_empty_final: bool,
}

impl GrpcInfer<'_> {
    fn decode_now(
        &self,
        deployment: Arc<Deployment>,
        message: InferMessage,
    ) -> Result<Decoded<GrpcAsked>, RefusedBody> {
        let InferMessage { request, raw, bytes } = message;
        let refused = |failure| RefusedBody { failure, deployment: Some(deployment.clone()) };
        let (manifest, signature) = (&deployment.manifest, &deployment.signature);
        let most_rows = room::most_items_of(&self.state.options, bytes);
        let inference = read(request, raw).and_then(|request| Inference::new(manifest, signature, request, most_rows));
        let Inference { calls, outputs, id, wishes } = inference.map_err(refused)?;
        // A part does not say of which row it is, so a request of several rows is answered whole.
        let is_in_parts = self.of_stream.is_some() && signature.part.is_some() && calls.len() == 1;
        let calls = calls.into_iter().map(Ok).collect();
        let ids = if self.of_stream.is_some() { 2 } else { 1 };
        let asked = id.len() * ids + wishes.bytes();
        let items = RequestItems::with_asked(&deployment, calls, bytes, asked).map_err(refused)?;
        let mut parameters = write_parameters(&wishes.kept);
        if self.of_stream.is_some() {
            set_final(&mut parameters, true);
        }
        let (model_name, model_version) = (manifest.name.clone(), deployment.version.clone());
        let response =
            ModelInferResponse { model_name, model_version, id, parameters, ..ModelInferResponse::default() };
        let has_empty_final = wishes.empty_final_response;
        let asked = GrpcAsked { signature: signature.clone(), outputs, response, is_in_parts, has_empty_final };
        Ok(Decoded { deployment, items, timeout: wishes.timeout, priority: wishes.priority, asked })
    }
}

impl Dialect for GrpcInfer<'_> {
    /// How a compressed message is compressed.
    type Head = Option<Coding>;
    type Asked = GrpcAsked;
    type Output = MessagePieces;

    const FORM: ProblemForm = reply::form;

    fn deployment(&self) -> Option<&Deployment> {
        None
    }

    fn allowed(&self) -> Duration {
        longest_allowed(self.state)
    }

    fn timeout(&self, headers: &HeaderMap) -> Result<Option<Duration>, Failure> {
        head::timeout(headers)
    }

    fn read_head(&self, headers: &HeaderMap) -> Result<Option<Coding>, Failure> {
        frame::coding(headers)
    }

    async fn decode(&self, coding: &Option<Coding>, body: Chunks) -> Result<Decoded<GrpcAsked>, RefusedBody> {
        // What counts an inflated message is kept until this returns.
        let PlainMessage { message, received: _received } = if self.of_stream.is_some() {
            PlainMessage { message: body, received: None }
        } else {
            frame::only(body, *coding, self.state.options.max_body_bytes, self.state, self.received).await?
        };
        let bytes = message.len();
        let (head, raw) = offload::run(bytes / COPIED, || tear(message)).await?;
        let request: ModelInferRequest = offload::run(head.len(), || frame::decode(head.into())).await?;
        if let Some(of_stream) = self.of_stream {
            of_stream.whose.get_or_init(|| ModelAndId { model: request.model_name.clone(), id: request.id.clone() });
        }
        let deployment = describe::find(self.state, &request.model_name, &request.model_version)?;
        let weight = deployment.signature.weight(bytes);
        offload::run(weight, || self.decode_now(deployment, InferMessage { request, raw, bytes })).await
    }

    fn parts(&self, _: &Option<Coding>, asked: &GrpcAsked) -> Option<Box<dyn PartsForm>> {
        let of_stream = self.of_stream.filter(|_| asked.is_in_parts)?;
        Some(Box::new(PartMessages {
            signature: asked.signature.clone(),
            outputs: asked.outputs.clone(),
            response: asked.response.clone(),
            has_empty_final: asked.has_empty_final,
            failure: of_stream.failure.clone(),
            next: None,
        }))
    }

    fn write_weight(&self, _: &Option<Coding>, _asked: &GrpcAsked, answers: &[Answer]) -> usize {
        request::join_weight(answers)
    }

    fn write(
        &self,
        _: &Option<Coding>,
        asked: GrpcAsked,
        answers: Answers,
        timing: &Timing,
    ) -> Result<Written<MessagePieces>, Failure> {
        let GrpcAsked { signature, outputs, mut response, .. } = asked;
        let is_shared = timing.batch_size > 1;
        let tensors = join(&signature, &outputs, answers)?;
        let (outputs, raw) = tensors.into_iter().map(|tensor| output(tensor, is_shared)).unzip();
        response.outputs = outputs;
        let (response, tensors) = (response.encode_to_vec(), fields(raw));
        let mut head = Vec::with_capacity(12 + response.len());
        if self.of_stream.is_some() {
            let length = response.len() + tensors.iter().map(Bytes::len).sum::<usize>();
            encode_key(INFER_RESPONSE, WireType::LengthDelimited, &mut head);
            encode_varint(length as u64, &mut head);
        }
        head.extend_from_slice(&response);
        frame::framed(head, &tensors).map(Written::ok)
    }

    fn reply(&self, pieces: MessagePieces) -> Reply {
        reply::message(pieces)
    }
}

/// Tensors with what stands before each in a message: fields may come in any order, so they follow all others.
fn fields(raw: Vec<Bytes>) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(raw.len() * 2);
    for tensor in raw {
        let mut key = Vec::with_capacity(12);
        encode_key(RAW_OUTPUTS, WireType::LengthDelimited, &mut key);
        encode_varint(tensor.len() as u64, &mut key);
        pieces.push(key.into());
        pieces.push(tensor);
    }
    pieces
}

fn read(message: ModelInferRequest, raw_input_contents: Vec<Chunks>) -> Result<InferRequest, Failure> {
    let ModelInferRequest { model_name, id, parameters, inputs, outputs, .. } = message;
    let is_raw = !raw_input_contents.is_empty();
    if let Some(both) = inputs.iter().find(|input| is_raw && input.contents.is_some()) {
        // NVIDIA's own clients look for this sentence.
        let what = format!(
            "contents field must not be specified when using raw_input_contents for '{}' for model '{model_name}'",
            quoted(&both.name).trim_matches('`')
        );
        return Err(Failure::new(Outcome::InvalidInput, what));
    }
    if is_raw && raw_input_contents.len() != inputs.len() {
        let what = format!(
            "there are {} inputs and {} raw_input_contents; send one for each, in the order of the inputs",
            inputs.len(),
            raw_input_contents.len()
        );
        return Err(Failure::new(Outcome::InvalidInput, what));
    }
    let mut raw = raw_input_contents.into_iter();
    let inputs = inputs.into_iter().map(|input| tensor(input, raw.next())).collect::<Result<_, _>>()?;
    let mut wanted = Vec::with_capacity(outputs.len());
    for output in outputs {
        check_of_tensor(&output.name, output.parameters.keys().map(String::as_str), &[])?;
        wanted.push(output.name.into());
    }
    Ok(InferRequest { id, parameters: read_parameters(parameters)?, inputs, outputs: wanted })
}

fn of_input(name: &str, what: &str) -> Failure {
    Failure::new(Outcome::InvalidInput, format!("input {}: {what}", quoted(name)))
}

fn tensor(input: InferInputTensor, raw: Option<Chunks>) -> Result<Tensor, Failure> {
    let InferInputTensor { name, datatype, shape, parameters, contents } = input;
    check_of_tensor(&name, parameters.keys().map(String::as_str), &["binary_data_size"])?;
    let datatype = Datatype::parse(&datatype).ok_or_else(|| {
        let what =
            format!("the datatype {} is not taken; known are {}", quoted(&datatype), Datatype::names().join(", "));
        of_input(&name, &what)
    })?;
    let axes: Result<Shape, _> = shape.iter().map(|&axis| u64::try_from(axis)).collect();
    let shape = axes.map_err(|_| of_input(&name, &format!("its shape {} has an axis below 0", shown(&shape))))?;
    shape::check_shape(&shape).map_err(|what| of_input(&name, &what))?;
    let data = match (raw, contents) {
        (Some(raw), _) => raw,
        (None, Some(contents)) => typed(datatype, &contents).map_err(|what| of_input(&name, &what))?.into(),
        (None, None) => typed(datatype, &InferTensorContents::default()).map_err(|what| of_input(&name, &what))?.into(),
    };
    Ok(Tensor { name: name.into(), datatype, shape, data })
}

/// Converts elements of typed contents to the bytes that raw contents have.
fn typed(datatype: Datatype, contents: &InferTensorContents) -> Result<Bytes, String> {
    let InferTensorContents {
        bool_contents,
        int_contents,
        int64_contents,
        uint_contents,
        uint64_contents,
        fp32_contents,
        fp64_contents,
        bytes_contents,
    } = contents;
    let mut data = Vec::new();
    macro_rules! narrow {
        ($values:expr, $kind:ty) => {
            for &value in $values {
                let value = <$kind>::try_from(value).map_err(|_| format!("{value} is no {}", datatype.name()))?;
                data.extend_from_slice(&value.to_le_bytes());
            }
        };
    }
    macro_rules! copy {
        ($values:expr) => {
            $values.iter().for_each(|value| data.extend_from_slice(&value.to_le_bytes()))
        };
    }
    match datatype {
        Datatype::Bytes => bytes_contents.iter().try_for_each(|element| strings::push(&mut data, element))?,
        Datatype::Fixed(dtype) => match dtype {
            Dtype::Bool => data.extend(bool_contents.iter().map(|&value| u8::from(value))),
            Dtype::Int8 => narrow!(int_contents, i8),
            Dtype::Int16 => narrow!(int_contents, i16),
            Dtype::Int32 => copy!(int_contents),
            Dtype::Int64 => copy!(int64_contents),
            Dtype::Uint8 => narrow!(uint_contents, u8),
            Dtype::Uint16 => narrow!(uint_contents, u16),
            Dtype::Uint32 => copy!(uint_contents),
            Dtype::Uint64 => copy!(uint64_contents),
            Dtype::Float32 => copy!(fp32_contents),
            Dtype::Float64 => copy!(fp64_contents),
            Dtype::Float16 => return Err("FP16 has no typed contents; send raw_input_contents".into()),
        },
    }
    Ok(data.into())
}

fn read_parameters(parameters: HashMap<String, InferParameter>) -> Result<Parameters, Failure> {
    let read = |(name, parameter): (String, InferParameter)| {
        let value = match parameter.parameter_choice {
            Some(ParameterChoice::BoolParam(value)) => Parameter::Bool(value),
            Some(ParameterChoice::Int64Param(value)) => Parameter::Int(value),
            Some(ParameterChoice::StringParam(value)) => Parameter::Text(value),
            Some(ParameterChoice::DoubleParam(value)) => Parameter::Double(value),
            Some(ParameterChoice::Uint64Param(value)) => Parameter::Uint(value),
            None => {
                let detail = format!("parameter {} has no value", quoted(&name));
                return Err(Failure::new(Outcome::InvalidRequest, detail));
            }
        };
        Ok((name, value))
    };
    parameters.into_iter().map(read).collect()
}

fn write_parameters(parameters: &Parameters) -> HashMap<String, InferParameter> {
    let write = |(name, value): &(String, Parameter)| {
        let choice = match value {
            Parameter::Bool(value) => ParameterChoice::BoolParam(*value),
            Parameter::Int(value) => ParameterChoice::Int64Param(*value),
            Parameter::Uint(value) => ParameterChoice::Uint64Param(*value),
            Parameter::Double(value) => ParameterChoice::DoubleParam(*value),
            Parameter::Text(value) => ParameterChoice::StringParam(value.clone()),
        };
        (name.clone(), InferParameter { parameter_choice: Some(choice) })
    };
    parameters.iter().map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_inference::tests::manifest;
    use jitney_core::tables::metrics;
    use proptest::prelude::*;
    use tokio::sync::mpsc;

    #[test]
    fn tensors_behind_a_message_are_its_last_field() {
        let response = ModelInferResponse { id: "7".into(), ..ModelInferResponse::default() };
        let raw = vec![Bytes::from_static(b"abc"), Bytes::new(), Bytes::from(vec![1; 300])];
        let message = [response.encode_to_vec(), fields(raw.clone()).concat()].concat();
        let read = ModelInferResponse::decode(&message[..]).unwrap();
        assert_eq!((read.id.as_str(), read.raw_output_contents), ("7", raw));
    }

    #[test]
    fn typed_contents_are_the_same_as_raw_ones() {
        let contents = InferTensorContents {
            int_contents: vec![-1, 127],
            bytes_contents: vec![Bytes::from_static(b"ab")],
            ..InferTensorContents::default()
        };
        let of = |name| typed(Datatype::parse(name).unwrap(), &contents);
        assert_eq!(&of("INT8").unwrap()[..], [255, 127]);
        assert_eq!(&of("INT16").unwrap()[..], [255, 255, 127, 0]);
        assert_eq!(&of("BYTES").unwrap()[..], b"\x02\0\0\0ab");
        assert!(of("UINT8").unwrap().is_empty() && of("FP16").is_err());
        let wide = InferTensorContents { int_contents: vec![128], ..InferTensorContents::default() };
        assert!(typed(Datatype::Fixed(Dtype::Int8), &wide).unwrap_err().contains("128"));
    }

    /// While a request waits, its tensors share no memory with what the front has decoded, and what its answer repeats counts.
    #[tokio::test]
    async fn tensors_do_not_keep_the_message_around_them() {
        let state = ServerState::for_test(64 << 20);
        let array = |name: &str| serde_json::json!({ "name": name, "dtype": "uint8", "shape": [2] });
        let input = serde_json::json!({ "kind": "arrays", "arrays": [array("a"), array("b")], "schema": true });
        let manifest = manifest(input.clone(), input, serde_json::json!({}));
        let (inbound, _engine) = mpsc::unbounded_channel();
        let deployment = Deployment::new(Arc::new(manifest), inbound, &state.telemetry);
        let input = |name: &str| InferInputTensor {
            name: name.into(),
            datatype: "UINT8".into(),
            shape: vec![1, 2],
            ..InferInputTensor::default()
        };
        let message = ModelInferRequest {
            id: "x".repeat(2 << 20),
            inputs: vec![input("a"), input("b")],
            raw_input_contents: vec![Bytes::from_static(b"ab"), Bytes::from_static(b"cd")],
            ..ModelInferRequest::default()
        };
        let message = Bytes::from(message.encode_to_vec());
        let (head, raw) = tear(message.clone().into()).unwrap();
        let request = frame::decode(head.into()).unwrap();
        let infer = GrpcInfer { state: &state, received: &state.ledger.received, of_stream: None };
        let bytes = message.len();
        let decoded = infer.decode_now(Arc::new(deployment.clone()), InferMessage { request, raw, bytes });
        let decoded = decoded.map_err(|refused| refused.failure).unwrap();
        assert!(message.is_unique(), "its tensors are slices of the message");
        drop(state.telemetry.text());
        let later = || state.telemetry.gauge(metrics::LATER_BYTES, &[&deployment.manifest.name]).get();
        assert_eq!(later(), 2 << 20);
        drop(decoded);
        drop(state.telemetry.text());
        assert_eq!(later(), 0);
    }

    #[test]
    fn a_shape_of_any_length_is_refused_shortly() {
        for axis in [1, -1] {
            let input = InferInputTensor { datatype: "INT8".into(), shape: vec![axis; 100_000], ..Default::default() };
            let detail = tensor(input, Some(Chunks::default())).unwrap_err().detail;
            assert!(detail.len() < 300, "{} bytes", detail.len());
        }
    }

    proptest! {
        #[test]
        fn no_message_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let torn = tear(Bytes::from(bytes.clone()).into());
            if let Ok((head, raw)) = torn
                && let Ok(message) = frame::decode::<ModelInferRequest>(head.into())
            {
                prop_assert!(frame::decode::<ModelInferRequest>(bytes.into()).is_ok());
                let _ = read(message, raw);
            }
        }

        #[test]
        fn raw_tensors_come_out_whole_wherever_the_pieces_end(
            tensors in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4), cut in 1usize..30, id in ".{0,9}"
        ) {
            let raw_input_contents = tensors.iter().map(|tensor| Bytes::from(tensor.clone())).collect();
            let message = ModelInferRequest { id: id.clone(), raw_input_contents, ..ModelInferRequest::default() };
            let pieces = Chunks(message.encode_to_vec().chunks(cut).map(Bytes::copy_from_slice).collect());
            let (head, raw) = tear(pieces).unwrap();
            let raw: Vec<Vec<u8>> = raw.iter().map(|tensor| tensor.0.concat()).collect();
            prop_assert_eq!(raw, tensors);
            prop_assert_eq!(frame::decode::<ModelInferRequest>(head.into()).unwrap().id, id);
        }
    }
}
