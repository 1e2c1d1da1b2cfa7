//! What a server and its models say of themselves in this protocol. gRPC sends these messages, REST the same as JSON.

use super::datatype::Datatype;
use super::signature::{Signature, Slot};
use super::{VERSION, quoted};
use crate::call::{Dtype, Failure};
use crate::deployment::Deployment;
use crate::messages::inference as message;
use crate::messages::inference::model_metadata_response::TensorMetadata;
use crate::messages::inference::repository_index_response::ModelIndex;
use crate::site::Site;
use crate::statistics::Tally;
use jitney_core::metrics;
use jitney_core::outcome::Outcome;

/// What is said of a model's implementation where a name is asked for.
const PLATFORM: &str = "jitney";

/// The server.
pub fn server() -> message::ServerMetadataResponse {
    let extensions = ["binary_tensor_data", "model_configuration", "parameters", "schedule_policy", "statistics"];
    message::ServerMetadataResponse {
        name: "jitney".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        extensions: extensions.map(String::from).to_vec(),
    }
}

/// The deployment of this name; an empty version is any.
pub fn find<'a>(site: &'a Site, name: &str, version: &str) -> Result<&'a Deployment, Failure> {
    let Some(deployments) = site.deployments() else {
        return Err(site.loading("ask /v2/health/ready when they are there"));
    };
    let Some(deployment) = deployments.get(name) else {
        let known: Vec<&str> = deployments.keys().map(String::as_str).collect();
        // Triton's clients look for these words.
        let detail =
            format!("Request for unknown model: there is no {}; the models are {}", quoted(name), known.join(", "));
        return Err(Failure::new(Outcome::NotFound, detail));
    };
    if !version.is_empty() && version != VERSION {
        let detail = format!("model `{name}` has no version {}; its only version is {VERSION}", quoted(version));
        return Err(Failure::new(Outcome::NotFound, detail));
    }
    Ok(deployment)
}

/// Whether a model would answer now.
pub fn is_ready(site: &Site, deployment: &Deployment) -> bool {
    let replicas = site.telemetry.gauge(metrics::READY_REPLICAS, &[&deployment.manifest.name]).get();
    replicas > 0 && !site.readiness().draining
}

/// What is said of a tensor's elements. What only an answer tells is said to be what a bare array is that comes in, because
/// clients take no other word than the name of a type.
fn said(slot: &Slot) -> Datatype {
    slot.datatype().unwrap_or(Datatype::Fixed(Dtype::Float32))
}

/// A model.
pub fn model(deployment: &Deployment) -> message::ModelMetadataResponse {
    let Signature { inputs, outputs, batched, .. } = &*deployment.signature;
    let tensor = |slot: &Slot| {
        let batch = if *batched { vec![-1] } else { vec![] };
        TensorMetadata {
            name: slot.name.to_string(),
            datatype: said(slot).name().into(),
            shape: batch.into_iter().chain(slot.axes()).collect(),
        }
    };
    message::ModelMetadataResponse {
        name: deployment.manifest.name.clone(),
        versions: vec![VERSION.into()],
        platform: PLATFORM.into(),
        inputs: inputs.iter().map(tensor).collect(),
        outputs: outputs.iter().map(tensor).collect(),
    }
}

/// A model's configuration, as far as Triton's clients look at it.
pub fn config(deployment: &Deployment) -> message::ModelConfig {
    let Signature { inputs, outputs, batched, .. } = &*deployment.signature;
    let options = &deployment.manifest.options;
    let data_type = |slot: &Slot| said(slot).number().into();
    let delay_us = if options.policy == "fixed" { (options.max_batch_delay_ms * 1000.0) as u64 } else { 0 };
    let input = |slot: &Slot| message::ModelInput {
        name: slot.name.to_string(),
        data_type: data_type(slot),
        dims: slot.axes(),
        optional: slot.is_optional,
    };
    let output = |slot: &Slot| message::ModelOutput {
        name: slot.name.to_string(),
        data_type: data_type(slot),
        dims: slot.axes(),
    };
    message::ModelConfig {
        name: deployment.manifest.name.clone(),
        platform: PLATFORM.into(),
        max_batch_size: if *batched { i32::try_from(options.max_batch_size).unwrap_or(i32::MAX) } else { 0 },
        input: inputs.iter().map(input).collect(),
        output: outputs.iter().map(output).collect(),
        instance_group: vec![message::ModelInstanceGroup {
            name: deployment.manifest.name.clone(),
            count: i32::try_from(options.replicas).unwrap_or(i32::MAX),
        }],
        dynamic_batching: batched.then(|| message::ModelDynamicBatching {
            preferred_batch_size: vec![],
            max_queue_delay_microseconds: delay_us,
        }),
        backend: PLATFORM.into(),
        model_transaction_policy: Some(message::ModelTransactionPolicy { decoupled: false }),
    }
}

/// What a model has done since it was loaded.
pub fn statistics(site: &Site, deployment: &Deployment) -> message::ModelStatistics {
    let seen = deployment.statistics();
    let batches = site.telemetry.histogram(metrics::BATCH_ITEMS, &[&deployment.manifest.name]);
    let of = |tally: &Tally| {
        let (count, ns) = tally.seen();
        Some(message::StatisticDuration { count, ns })
    };
    let none = Some(message::StatisticDuration::default());
    message::ModelStatistics {
        name: deployment.manifest.name.clone(),
        version: VERSION.into(),
        last_inference: seen.last_ms(),
        inference_count: batches.get_sample_sum() as u64,
        execution_count: batches.get_sample_count(),
        inference_stats: Some(message::InferStatistics {
            success: of(&seen.success),
            fail: of(&seen.fail),
            queue: of(&seen.queue),
            // The way there and the way back are measured as one.
            compute_input: of(&seen.batch),
            compute_infer: of(&seen.model),
            compute_output: none,
            cache_hit: none,
            cache_miss: none,
        }),
        batch_stats: vec![],
    }
}

/// The statistics of one model, or of all if no name is given.
pub fn all_statistics(site: &Site, name: &str, version: &str) -> Result<message::ModelStatisticsResponse, Failure> {
    let model_stats = if name.is_empty() {
        site.deployments().into_iter().flatten().map(|(_, deployment)| statistics(site, deployment)).collect()
    } else {
        vec![statistics(site, find(site, name, version)?)]
    };
    Ok(message::ModelStatisticsResponse { model_stats })
}

/// All models; with `ready` those that would answer now.
pub fn index(site: &Site, ready: bool) -> message::RepositoryIndexResponse {
    let models = site.deployments().into_iter().flatten().map(|(name, deployment)| {
        let is_ready = is_ready(site, deployment);
        let reason = if is_ready { "" } else { "no replica of it is loaded" };
        let state = if is_ready { "READY" } else { "UNAVAILABLE" };
        ModelIndex { name: name.clone(), version: VERSION.into(), state: state.into(), reason: reason.into() }
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
