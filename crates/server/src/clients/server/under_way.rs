//! The requests of one program that are in flight, by the number that the program gave them. A number may be used again once
//! its request has ended, so a request is known by its number and a ticket.

use crate::clients::server::window::Window;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// One use of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    number: u64,
    /// How many requests came before on this connection.
    before: u64,
}

/// Requests that have neither ended nor been cancelled.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    begun: u64,
    tasks: FxHashMap<u64, (Ticket, AbortHandle)>,
    /// Of those whose answers go in parts.
    windows: FxHashMap<u64, Arc<Window>>,
}

impl Requests {
    fn has(&self, ticket: Ticket) -> bool {
        self.tasks.get(&ticket.number).is_some_and(|(current, _)| *current == ticket)
    }

    fn remove(&mut self, number: u64) -> Option<(Ticket, AbortHandle)> {
        self.windows.remove(&number);
        self.tasks.remove(&number)
    }
}

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request; false if its number is in use. `spawn` starts its task.
    pub(super) fn begin(&self, number: u64, spawn: impl FnOnce(Ticket) -> AbortHandle) -> bool {
        // Locked until the task is in the map, so that it cannot end before.
        let mut requests = self.lock();
        if requests.tasks.contains_key(&number) {
            return false;
        }
        requests.begun += 1;
        let ticket = Ticket { number, before: requests.begun };
        let task = spawn(ticket);
        requests.tasks.insert(number, (ticket, task));
        true
    }

    /// The same for a request whose answer goes in parts.
    pub(super) fn begin_stream(
        &self,
        number: u64,
        window: &Arc<Window>,
        spawn: impl FnOnce(Ticket) -> AbortHandle,
    ) -> bool {
        let is_new = self.begin(number, spawn);
        let mut requests = self.lock();
        // It may have ended already.
        if is_new && requests.tasks.contains_key(&number) {
            requests.windows.insert(number, window.clone());
        }
        is_new
    }

    /// Whether a request was neither ended nor cancelled.
    pub(super) fn has(&self, ticket: Ticket) -> bool {
        self.lock().has(ticket)
    }

    /// The program has taken so many bytes of the answer to the request that has this number now.
    pub(super) fn taken(&self, number: u64, bytes: u64) {
        self.lock().windows.get(&number).iter().for_each(|window| window.give(bytes));
    }

    /// Ends a request; false if it was cancelled: then its answers must not be sent, because the number may stand for
    /// another request by now.
    pub(super) fn end(&self, ticket: Ticket) -> bool {
        let mut requests = self.lock();
        let is_current = requests.has(ticket);
        if is_current {
            requests.remove(ticket.number);
        }
        is_current
    }

    /// Cancels the request that has this number now. Dropped with its task, the call cancels its items.
    pub(super) fn cancel(&self, number: u64) {
        let request = self.lock().remove(number);
        request.iter().for_each(|(_, task)| task.abort());
    }

    /// Cancels all requests.
    pub(super) fn cancel_all(&self) {
        self.lock().tasks.drain().for_each(|(_, (_, task))| task.abort());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_that_was_cancelled_ends_no_later_one_of_the_same_number() {
        let requests = UnderWay::default();
        let begin = |number| {
            let mut begun = None;
            let is_new = requests.begin(number, |ticket| {
                begun = Some(ticket);
                tokio::spawn(std::future::pending::<()>()).abort_handle()
            });
            begun.filter(|_| is_new)
        };
        let first = begin(7).unwrap();
        assert!(begin(7).is_none(), "the number is in use");
        requests.cancel(7);
        let second = begin(7).unwrap();
        assert!(!requests.end(first), "its task was past its last wait when it was cancelled");
        assert!(begin(7).is_none(), "the second is still in flight");
        assert!(requests.end(second));
        assert!(!requests.end(second), "once");
    }
}
