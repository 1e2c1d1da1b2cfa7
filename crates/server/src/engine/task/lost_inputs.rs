//! Inputs that may be why a replica was lost. They are hashed, so that equal inputs are known when they come; large ones on
//! another thread, because the engine would give no batch to any replica meanwhile.

use crate::engine::task::pending::Pending;
use crate::values::call::Part;
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::{ItemId, ReplicaId};
use jitney_core::scheduler::item::Payload;
use smallvec::SmallVec;
use tokio::task::JoinSet;

/// Inputs of more bytes than this together are hashed on another thread. This many take about 0.5 ms.
const READ_ELSEWHERE: usize = 1 << 20;

/// A lost replica whose inputs have been hashed.
#[derive(Debug)]
pub(super) struct InputsRead {
    pub(super) replica: ReplicaId,
    pub(super) loss: Loss,
    pub(super) hashes: Vec<(ItemId, u64)>,
}

/// The inputs of lost replicas that are hashed now.
#[derive(Debug, Default)]
pub(super) struct LostInputs(JoinSet<InputsRead>);

impl LostInputs {
    /// Begins to hash the inputs of a replica; false if they are so small that the engine hashes them itself.
    pub(super) fn read(&mut self, replica: ReplicaId, loss: Loss, inputs: Vec<(ItemId, SmallVec<[Part; 1]>)>) -> bool {
        let bytes: usize = inputs.iter().flat_map(|(_, parts)| parts).map(|part| part.data.len()).sum();
        if bytes < READ_ELSEWHERE {
            return false;
        }
        self.0.spawn_blocking(move || {
            let hashes = inputs.iter().map(|(item, input)| (*item, Pending::fingerprint(input))).collect();
            InputsRead { replica, loss, hashes }
        });
        true
    }

    /// Waits for the next replica whose inputs have been hashed; `None` if there is none.
    pub(super) async fn next(&mut self) -> Option<InputsRead> {
        let read = self.0.join_next().await?;
        Some(read.expect("a hash is computed to its end"))
    }
}
