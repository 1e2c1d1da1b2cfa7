//! One deployment of a server, as a program calls it.

use crate::clients::call_frame;
use crate::clients::client::calls::{AwaitedAnswer, Shared};
use crate::clients::client::parts;
use crate::clients::client::sending::{Request, send};
use crate::clients::gathering::Gathering;
use crate::engine::program_values::parts::{BoxedCallParts, LazyParts};
use crate::engine::program_values::{Answering, AnsweringOne, Parts, Terms, only};
use crate::values::answer::{Answer, Failure};
use futures_util::FutureExt;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The way in to one deployment of the server.
#[derive(Clone, Debug)]
pub struct RemoteEntrance {
    pub(super) deployment: Arc<str>,
    pub(super) shared: Arc<Shared>,
}

impl RemoteEntrance {
    /// Runs a request of one item.
    pub fn call_one(&self, parts: Parts, terms: Terms) -> AnsweringOne {
        Box::pin(self.call(vec![parts], terms).map(only))
    }

    /// Runs the items of one request: an answer each, in order.
    pub fn call(&self, items: Vec<Parts>, terms: Terms) -> Answering {
        let (shared, deployment) = (self.shared.clone(), self.deployment.clone());
        Box::pin(async move {
            let count = items.len();
            call(shared, &deployment, items, terms).await.unwrap_or_else(|failure| vec![Answer::failed(failure); count])
        })
    }

    /// Runs one item whose answer comes in parts. The first poll sends the item to the server.
    pub fn stream(&self, item: Parts, terms: Terms) -> BoxedCallParts {
        let opening = parts::open(self.shared.clone(), self.deployment.clone(), item, terms);
        Box::new(LazyParts::new(Box::pin(opening), ()))
    }
}

async fn call(shared: Arc<Shared>, deployment: &str, items: Vec<Parts>, terms: Terms) -> Result<Vec<Answer>, Failure> {
    let count = items.len();
    let (reply, answers) = oneshot::channel();
    let mut awaited = Some(AwaitedAnswer::Whole(reply, Gathering::new(count)));
    let caller = shared.caller;
    let frame = |id, terms: &Terms| call_frame::call(caller, id, deployment, items.clone(), terms);
    let request = Request { deployment, items: &items, terms };
    let _sent = send(shared.clone(), request, frame, || awaited.take()).await?;
    let lost = |_| shared.lost();
    answers.await.map_err(lost)
}
