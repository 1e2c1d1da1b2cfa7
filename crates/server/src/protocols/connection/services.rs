//! The service that answers the requests of a connection, as far as the connection knows it.

use crate::protocols::connection::socket::Activity;
use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;

/// Makes one service for each connection. A connection does not know which routes there are.
pub(crate) trait Services: Clone + Send + Sync + 'static {
    /// The body of each answer.
    type Body: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
    /// Answers the requests of one connection.
    type Service: hyper::service::Service<
            Request<Incoming>,
            Response = Response<Self::Body>,
            Error = Infallible,
            Future: Send + 'static,
        > + Send
        + 'static;

    /// The service of a new connection. `own_host` is the host of an address that only this machine can reach, `None` if
    /// requests may name any host; the service reports to `activity` when each request begins and ends.
    fn of_connection(&self, own_host: Option<Arc<str>>, activity: Arc<Activity>) -> Self::Service;
}
