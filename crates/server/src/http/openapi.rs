//! `GET /openapi.json`: the API as the manifests describe it.

use super::pages::json_reply;
use super::service::Reply;
use crate::site::Site;
use hyper::Request;
use hyper::body::Incoming;
use serde_json::json;

pub(crate) fn page(_: &Site, _: &Request<Incoming>) -> Reply {
    json_reply(&json!({}))
}
