//! The requests of one program that are in flight, by the number that the program gave them. A number may be used again once
//! its request has ended, so a request is known by its key.

use crate::clients::server::window::Window;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// Names one request of a connection, whatever number others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestKey {
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
    by_number: FxHashMap<u64, Request>,
}

#[derive(Debug)]
struct Request {
    key: RequestKey,
    task: AbortHandle,
    items: usize,
    /// `None` if the answer goes whole.
    window: Option<Arc<Window>>,
    /// Parts that were sent.
    sent: u32,
}

impl Requests {
    fn has(&self, key: RequestKey) -> bool {
        self.by_number.get(&key.number).is_some_and(|request| request.key == key)
    }
}

impl UnderWay {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request of so many items, whose answer goes in parts if there is a window for them; false if its number is in use. `spawn`
    /// starts its task.
    pub(super) fn begin(
        &self,
        number: u64,
        items: usize,
        window: Option<Arc<Window>>,
        spawn: impl FnOnce(RequestKey) -> AbortHandle,
    ) -> bool {
        // Locked until the task is in the map, so that it cannot end before.
        let mut requests = self.lock();
        if requests.by_number.contains_key(&number) {
            return false;
        }
        requests.begun += 1;
        let key = RequestKey { number, before: requests.begun };
        let task = spawn(key);
        requests.by_number.insert(number, Request { key, task, items, window, sent: 0 });
        true
    }

    /// Sends so many parts of the answer to a request that was neither ended nor cancelled.
    pub(super) fn send_parts(&self, key: RequestKey, parts: u32, send: impl FnOnce()) {
        // Locked until they are sent: a withdrawal goes on from the last part that was.
        let mut requests = self.lock();
        if let Some(request) = requests.by_number.get_mut(&key.number).filter(|request| request.key == key) {
            request.sent += parts;
            send();
        }
    }

    /// Whether the request that has this number now is in flight.
    pub(super) fn has_number(&self, number: u64) -> bool {
        self.lock().by_number.contains_key(&number)
    }

    /// The program has taken so many bytes of the answer to the request that has this number now.
    pub(super) fn taken(&self, number: u64, bytes: u64) {
        let requests = self.lock();
        let window = requests.by_number.get(&number).and_then(|request| request.window.as_ref());
        window.into_iter().for_each(|window| window.give(bytes));
    }

    /// Ends a request; false if it was cancelled: then its answers must not be sent, because the number may stand for
    /// another request by now.
    pub(super) fn end(&self, key: RequestKey) -> bool {
        let mut requests = self.lock();
        let is_current = requests.has(key);
        if is_current {
            requests.by_number.remove(&key.number);
        }
        is_current
    }

    /// Cancels the request that has this number now. Dropped with its task, the call cancels its items.
    pub(super) fn cancel(&self, number: u64) {
        let request = self.lock().by_number.remove(&number);
        request.into_iter().for_each(|request| request.task.abort());
    }

    /// Cancels the request that has this number now, for a caller that still waits. `answer` gets the number of its items, and of the
    /// parts that were sent if the answer goes in parts.
    pub(super) fn withdraw(&self, number: u64, answer: impl FnOnce(usize, Option<u32>)) {
        let mut requests = self.lock();
        let Some(Request { task, items, window, sent, .. }) = requests.by_number.remove(&number) else { return };
        answer(items, window.map(|_| sent));
        drop(requests);
        task.abort();
    }

    /// Cancels all requests.
    pub(super) fn cancel_all(&self) {
        self.lock().by_number.drain().for_each(|(_, request)| request.task.abort());
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
            let is_new = requests.begin(number, 2, None, |key| {
                begun = Some(key);
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

    #[tokio::test]
    async fn who_waits_for_a_request_that_is_withdrawn_gets_an_answer_behind_the_parts_that_were_sent() {
        let requests = UnderWay::default();
        let (mut key, mut answers) = (None, Vec::new());
        let window = Some(Arc::new(Window::default()));
        requests.begin(7, 1, window, |new| {
            key = Some(new);
            tokio::spawn(std::future::pending::<()>()).abort_handle()
        });
        requests.begin(8, 3, None, |_| tokio::spawn(std::future::pending::<()>()).abort_handle());
        let key = key.unwrap();
        requests.send_parts(key, 2, || {});
        for number in [7, 8, 7] {
            requests.withdraw(number, |items, sent| answers.push((items, sent)));
        }
        assert_eq!(answers, [(1, Some(2)), (3, None)], "each once");
        requests.send_parts(key, 1, || panic!("a part behind the end"));
        assert!(!requests.end(key));
    }
}
