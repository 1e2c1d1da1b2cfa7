//! Work that takes long enough to hold up others.

use futures_util::future::Either;
use std::future::ready;
use std::sync::LazyLock;
use std::thread::available_parallelism;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;

/// Bodies and answers from this size on are parsed and written where they delay no other request: a megabyte of JSON takes
/// milliseconds, for which engines, links and probes on the same thread would wait.
const HEAVY_BYTES: usize = 256 * 1024;
/// What is copied, or looked at without being parsed, is done with about so many times as fast, and weighs less by that.
/// What is only passed on weighs nothing. To move all other requests to another thread takes two switches, which is more than
/// a request with a megabyte of bytes needs for all that it does here.
pub(crate) const COPIED: usize = 8;

/// Half of the cores: the other half stays for all other requests.
static PLACES: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))));

/// Whether work on this many bytes is short enough for the current thread: it does not delay other requests.
pub(crate) fn is_light(bytes: usize) -> bool {
    bytes < HEAVY_BYTES
}

/// Does work that is proportional to `bytes` that are parsed or written anew. If that is much, the other tasks of this
/// thread are moved to another one first, which only a runtime of several threads can do. Little work is done by the call
/// itself, so that the future of a request holds a result, and not also what the work needs.
pub(crate) fn run<T>(bytes: usize, work: impl FnOnce() -> T) -> impl Future<Output = T> {
    // A call may be polled by a program's own thread, with no runtime at all.
    let is_shared =
        || Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_light(bytes) || !is_shared() {
        return Either::Left(ready(work()));
    }
    Either::Right(Box::pin(async {
        // The semaphore is never closed; were it, the work would still have to be done.
        let _place = PLACES.acquire().await.ok();
        block_in_place(work)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn heavy_work_holds_up_nobody() {
        let (begun, told) = tokio::sync::oneshot::channel();
        let (release, wait) = std::sync::mpsc::channel();
        // With one worker thread the second task can only run if the first has made way.
        let heavy = tokio::spawn(run(HEAVY_BYTES, move || {
            let _ = begun.send(());
            wait.recv().is_ok()
        }));
        tokio::spawn(async move {
            told.await.unwrap();
            release.send(()).unwrap();
        });
        assert!(heavy.await.unwrap());
    }

    #[tokio::test]
    async fn one_thread_does_it_itself() {
        assert_eq!(run(HEAVY_BYTES, || 7).await, 7);
    }
}
