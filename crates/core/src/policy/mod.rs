//! When a batch leaves and which items are in it.

pub mod auto;
pub mod batch_policy;
pub mod batch_size;
pub mod choice;
pub mod decisions;
pub mod hold;
pub mod hold_ledger;
pub mod similar_length;
