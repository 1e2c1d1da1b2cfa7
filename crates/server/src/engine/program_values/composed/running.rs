//! The items that a composition carries out now.

use futures_util::future::{AbortHandle, AbortRegistration};
use jitney_core::request::ItemId;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How each item is given up, by its id. Clones are the same table.
#[derive(Clone, Debug, Default)]
pub(super) struct Running(Arc<Mutex<FxHashMap<ItemId, AbortHandle>>>);

impl Running {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<ItemId, AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an item. The work for it ends with what is returned.
    pub(super) fn begin(&self, id: ItemId) -> (AbortRegistration, RunningItem) {
        let (handle, registration) = AbortHandle::new_pair();
        self.lock().insert(id, handle);
        (registration, RunningItem { id, all: self.clone() })
    }

    /// Gives an item up, if it has not ended.
    pub(super) fn cancel(&self, id: ItemId) {
        let handle = self.lock().remove(&id);
        if let Some(handle) = handle {
            handle.abort();
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}

/// An item that is carried out, until this is dropped.
pub(super) struct RunningItem {
    id: ItemId,
    all: Running,
}

impl Drop for RunningItem {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}
