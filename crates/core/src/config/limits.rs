//! What bounds a batch and a queue.

/// What bounds one batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Most items.
    pub max_items: usize,
    /// Most cost, in the deployment's cost units; an item above it is computed alone.
    pub max_cost: u64,
}

impl BatchLimits {
    /// Items of a full batch, if the mean item has this cost.
    pub fn items(&self, mean_cost: f64) -> usize {
        ((self.max_cost as f64 / mean_cost) as usize).clamp(1, self.max_items.max(1))
    }

    /// Whether an item of cost `more` needs another batch than one that holds `items` items of `cost` together.
    pub fn is_closed(&self, items: usize, cost: u128, more: u64) -> bool {
        items >= self.max_items || items > 0 && cost + u128::from(more) > u128::from(self.max_cost)
    }
}

/// What bounds the queue of a deployment.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Most items that wait.
    pub max_items: usize,
    /// Most bytes that wait.
    pub max_bytes: u64,
}
