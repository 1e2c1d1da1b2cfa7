//! What a server and its models say of themselves in this protocol. gRPC sends these messages, REST the same as JSON.

use crate::engine::deployment::Deployment;
use crate::engine::deployment::statistics::Tally;
use crate::engine::server_state::ServerState;
use crate::open_inference::datatype::Datatype;
use crate::open_inference::messages::inference as message;
use crate::open_inference::messages::inference::model_metadata_response::TensorMetadata;
use crate::open_inference::messages::inference::repository_index_response::ModelIndex;
use crate::open_inference::signature::TensorSlot;
use crate::open_inference::tensor::quoted;
use crate::values::answer::Failure;
use crate::values::tensor::Dtype;
use jitney_core::tables::metrics;
use jitney_core::tables::outcome::Outcome;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use tokio::time::Instant;

/// What is said of a model's implementation where a name is asked for.
const PLATFORM: &str = "jitney";

/// The server.
pub fn server() -> message::ServerMetadataResponse {
    let extensions =
        ["binary_tensor_data", "generate", "model_configuration", "parameters", "schedule_policy", "statistics"];
    message::ServerMetadataResponse {
        name: "jitney".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        extensions: extensions.map(String::from).to_vec(),
    }
}

/// The deployment of this name; an empty version is any.
pub fn find(state: &ServerState, name: &str, version: &str) -> Result<Arc<Deployment>, Failure> {
    let Some(catalogue) = state.catalogue() else {
        return Err(state.loading("ask /v2/health/ready when they are there"));
    };
    let Some(deployment) = catalogue.get(name) else {
        let known: Vec<&str> = catalogue.names().collect();
        // Triton's clients look for these words.
        let detail =
            format!("Request for unknown model: there is no {}; the models are {}", quoted(name), known.join(", "));
        return Err(Failure::new(Outcome::NotFound, detail));
    };
    if !version.is_empty() && version != deployment.version {
        let served = &deployment.version;
        let detail = format!("model `{name}` has no version {}; its only version is {served}", quoted(version));
        return Err(Failure::new(Outcome::NotFound, detail));
    }
    Ok(deployment.clone())
}

/// Whether a model would answer now.
pub fn is_ready(state: &ServerState, deployment: &Deployment) -> bool {
    state.readiness().is_ready_for(deployment.manifest.deployment())
}

/// The datatype that the description gives for a tensor. Clients expect the name of a type. If only an answer will show
/// the type, this is `FP32`, the type that a bare array has as input.
fn said(slot: &TensorSlot) -> Datatype {
    slot.datatype().unwrap_or(Datatype::Fixed(Dtype::Float32))
}

/// A model.
pub fn model(deployment: &Deployment) -> message::ModelMetadataResponse {
    let signature = &*deployment.signature;
    let tensor = |slot: &TensorSlot| {
        let batch = if signature.batched { vec![-1] } else { vec![] };
        TensorMetadata {
            name: slot.name.to_string(),
            datatype: said(slot).name().into(),
            shape: batch.into_iter().chain(slot.axes()).collect(),
        }
    };
    message::ModelMetadataResponse {
        name: deployment.manifest.name.clone(),
        versions: vec![deployment.version.clone()],
        platform: PLATFORM.into(),
        inputs: signature.inputs.iter().map(tensor).collect(),
        outputs: signature.named_outputs().map(tensor).collect(),
    }
}

/// A model's configuration, as far as Triton's clients look at it.
pub fn config(deployment: &Deployment) -> message::ModelConfig {
    let signature = &*deployment.signature;
    let options = &deployment.manifest.options;
    let data_type = |slot: &TensorSlot| said(slot).number().into();
    let delay_us = if options.policy == "fixed" { (options.max_batch_delay_ms * 1000.0) as u64 } else { 0 };
    let input = |slot: &TensorSlot| message::ModelInput {
        name: slot.name.to_string(),
        data_type: data_type(slot),
        dims: slot.axes(),
        optional: slot.is_optional,
    };
    let output = |slot: &TensorSlot| message::ModelOutput {
        name: slot.name.to_string(),
        data_type: data_type(slot),
        dims: slot.axes(),
    };
    message::ModelConfig {
        name: deployment.manifest.name.clone(),
        platform: PLATFORM.into(),
        max_batch_size: if signature.batched { i32::try_from(options.max_batch_size).unwrap_or(i32::MAX) } else { 0 },
        input: signature.inputs.iter().map(input).collect(),
        output: signature.named_outputs().map(output).collect(),
        // As in Triton, a configuration says what is wanted. How many replicas work now is in the metrics.
        instance_group: vec![message::ModelInstanceGroup {
            name: deployment.manifest.name.clone(),
            count: i32::try_from(options.replicas).unwrap_or(i32::MAX),
        }],
        dynamic_batching: signature.batched.then(|| message::ModelDynamicBatching {
            preferred_batch_size: vec![],
            max_queue_delay_microseconds: delay_us,
        }),
        backend: PLATFORM.into(),
        model_transaction_policy: Some(message::ModelTransactionPolicy { decoupled: signature.part.is_some() }),
    }
}

/// Milliseconds since 1970 of an instant, by the clock as it was when the server started: the same instant is always the same number.
fn unix_ms(state: &ServerState, at: Instant) -> u64 {
    let since_1970 = state.created.duration_since(UNIX_EPOCH).unwrap_or_default();
    let since_start = at.into_std().saturating_duration_since(state.started);
    u64::try_from((since_1970 + since_start).as_millis()).unwrap_or(u64::MAX)
}

/// What a model has done since it was loaded.
pub fn statistics(state: &ServerState, deployment: &Deployment) -> message::ModelStatistics {
    let totals = deployment.statistics().totals();
    let batches = state.telemetry.histogram(metrics::BATCH_ITEMS, &[&deployment.manifest.name]);
    let duration = |tally: Tally| Some(message::StatisticDuration { count: tally.count, ns: tally.ns });
    let none = Some(message::StatisticDuration::default());
    // Every answer was encoded: that is counted, and its time is part of the way there and back, which is one figure.
    let encoded = Tally { count: totals.success.count, ns: 0 };
    message::ModelStatistics {
        name: deployment.manifest.name.clone(),
        version: deployment.version.clone(),
        last_inference: totals.last.map_or(0, |at| unix_ms(state, at)),
        inference_count: batches.get_sample_sum() as u64,
        execution_count: batches.get_sample_count(),
        inference_stats: Some(message::InferStatistics {
            success: duration(totals.success),
            fail: duration(totals.fail),
            queue: duration(totals.queue),
            compute_input: duration(totals.batch),
            compute_infer: duration(totals.model),
            compute_output: duration(encoded),
            cache_hit: none,
            cache_miss: none,
        }),
        batch_stats: vec![],
    }
}

/// The statistics of one model, or of all if no name is given.
pub fn all_statistics(
    state: &ServerState,
    name: &str,
    version: &str,
) -> Result<message::ModelStatisticsResponse, Failure> {
    let model_stats = if name.is_empty() {
        state.deployments().iter().map(|deployment| statistics(state, deployment)).collect()
    } else {
        let deployment = find(state, name, version)?;
        vec![statistics(state, &deployment)]
    };
    Ok(message::ModelStatisticsResponse { model_stats })
}

/// All models; with `ready` those that would answer now.
pub fn index(state: &ServerState, ready: bool) -> message::RepositoryIndexResponse {
    let models = state.deployments().into_iter().map(|deployment| {
        let is_ready = is_ready(state, &deployment);
        let reason = if is_ready { "" } else { "no replica of it is loaded" };
        let state = if is_ready { "READY" } else { "UNAVAILABLE" };
        let (name, version) = (deployment.manifest.name.clone(), deployment.version.clone());
        ModelIndex { name, version, state: state.into(), reason: reason.into() }
    });
    message::RepositoryIndexResponse { models: models.filter(|model| !ready || model.state == "READY").collect() }
}

/// Why tensors cannot be left in memory that client and server share.
pub fn no_shared_memory() -> Failure {
    let detail = "shared memory is not offered by this server; send tensors in the request";
    Failure::new(Outcome::NotFound, detail)
}

/// Why models are neither loaded nor unloaded on request.
pub fn no_control() -> Failure {
    let detail =
        "models are loaded when the server starts and stay until it ends; it takes no requests to load or unload";
    Failure::new(Outcome::InvalidRequest, detail)
}
