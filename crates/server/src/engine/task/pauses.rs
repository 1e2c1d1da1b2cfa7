//! Items whose clients do not read: their workers make no further part of them for now.

use crate::engine::task::Engine;
use jitney_core::request::{ItemId, ReplicaId};
use jitney_core::time::Time;
use std::time::Duration;

impl Engine {
    /// As many parts of an item wait as may wait.
    pub(super) fn pause(&mut self, now: Time, id: ItemId, patience: Option<Duration>) {
        let replica = self.scheduler.pause(now, id, patience);
        self.send_pause(replica, id, true);
    }

    /// The client of a paused item has read. If as many parts wait again as may wait, because some were on their way, the
    /// client says it once more.
    pub(super) fn resume(&mut self, now: Time, id: ItemId) {
        if self.scheduler.payload(id, now).is_some_and(|(pending, _)| pending.reply.is_filled()) {
            return;
        }
        let replica = self.scheduler.resume(id);
        self.send_pause(replica, id, false);
    }

    fn send_pause(&self, replica: Option<ReplicaId>, id: ItemId, is_paused: bool) {
        if let Some(link) = replica.and_then(|replica| self.links.get(&replica)) {
            link.pause(id, is_paused);
        }
    }
}
