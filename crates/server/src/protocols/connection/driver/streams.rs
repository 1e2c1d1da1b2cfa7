//! The streams of an HTTP/2 connection. One whose client does not read is reset, and the others go on.

use crate::protocols::connection::backlog::ResponseBacklog;
use crate::protocols::connection::socket::Activity;
use hyper::rt::Executor;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep, sleep_until};

/// Runs each stream in a task.
#[derive(Clone, Debug)]
pub(super) struct Streams(pub(super) Arc<Activity>);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        // hyper has asked the service for this stream a moment ago, on this thread.
        match self.0.opened.take() {
            Some(backlog) => drop(tokio::spawn(run(stream, backlog, self.0.clone()))),
            None => drop(tokio::spawn(stream)),
        }
    }
}

/// Runs a stream to its end, or until its client has left what waits in `backlog` for too long. Then it is reset.
async fn run<F: Future>(stream: F, backlog: Arc<ResponseBacklog>, activity: Arc<Activity>) {
    let mut stream = pin!(stream);
    let mut timer = None;
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            // The protocol has the rest of the answer, and cannot reset the stream any more.
            activity.backlog.adopt(&backlog);
            return Poll::Ready(());
        }
        ready!(poll_overdue(&backlog, &mut timer, cx));
        backlog.give_up();
        Poll::Ready(())
    })
    .await;
}

/// The timer may ring early, never late: most chunks are taken long before they must be.
fn poll_overdue(backlog: &ResponseBacklog, timer: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> Poll<()> {
    while let Some(end) = backlog.end() {
        if end <= Instant::now() {
            return Poll::Ready(());
        }
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if timer.is_elapsed() || end < timer.deadline() {
            timer.as_mut().reset(end);
        }
        ready!(timer.as_mut().poll(cx));
    }
    Poll::Pending
}
