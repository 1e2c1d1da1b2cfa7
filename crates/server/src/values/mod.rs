//! What crosses between a protocol, the engine and a worker: calls, answers, tensors, failures.

pub mod answer;
pub mod call;
pub mod call_id;
pub mod chunks;
pub mod metadata;
pub mod tensor;
pub mod text;
