//! The last traces that were kept, for who asks without a collector.

use crate::base::traces::messages::{KeyValue, Span, attribute};
use crate::base::traces::otlp::json;
use std::collections::VecDeque;
use std::sync::Arc;

/// Traces that can be looked up.
const MOST: usize = 1000;
/// Spans that they have together: some 15 MB. A request of many items has some hundred.
const MOST_SPANS: usize = 20_000;

/// Traces, the last one behind.
#[derive(Debug)]
pub(crate) struct Store {
    resource: Vec<KeyValue>,
    traces: VecDeque<Stored>,
    spans: usize,
}

#[derive(Debug)]
struct Stored {
    request_ids: Vec<Arc<str>>,
    spans: Arc<[Span]>,
}

impl Store {
    /// Without traces, of a process that has these attributes.
    pub(crate) fn new(resource: Vec<(String, String)>) -> Store {
        Store { resource: resource_attributes(resource), traces: VecDeque::new(), spans: 0 }
    }

    /// What is said of this process.
    pub(crate) fn resource(&self) -> &[KeyValue] {
        &self.resource
    }

    /// Adds a trace; the oldest ones make room.
    pub(crate) fn add(&mut self, request_ids: Vec<Arc<str>>, spans: Arc<[Span]>) {
        self.spans += spans.len();
        while self.traces.len() >= MOST || self.spans > MOST_SPANS {
            let Some(oldest) = self.traces.pop_front() else { break };
            self.spans -= oldest.spans.len();
        }
        self.traces.push_back(Stored { request_ids, spans });
    }

    /// The traces of the request that has this id, or else of all requests of the trace that has it; and of the batches that
    /// these were in.
    pub(crate) fn find(&self, id: &str) -> Option<serde_json::Value> {
        self.of_requests(&[id]).or_else(|| {
            let trace = trace_id(id)?;
            let is_of = |stored: &&Stored| stored.spans.iter().any(|span| span.trace_id == trace);
            let ids = self.traces.iter().filter(is_of).flat_map(|stored| &stored.request_ids);
            self.of_requests(&ids.map(|id| &**id).collect::<Vec<_>>())
        })
    }

    fn of_requests(&self, ids: &[&str]) -> Option<serde_json::Value> {
        let is_of = |stored: &&Stored| stored.request_ids.iter().any(|id| ids.contains(&&**id));
        let mut found = self.traces.iter().filter(is_of).peekable();
        found.peek()?;
        Some(json::document(&self.resource, SCOPE, found.flat_map(|stored| stored.spans.iter())))
    }
}

/// The bytes of the id of a trace, which is 32 hex digits.
fn trace_id(text: &str) -> Option<[u8; 16]> {
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| is_id).map(u128::to_be_bytes)
}

/// The name and version of what makes the spans.
pub(crate) const SCOPE: (&str, &str) = ("jitney", env!("CARGO_PKG_VERSION"));

fn resource_attributes(given: Vec<(String, String)>) -> Vec<KeyValue> {
    let own =
        [("telemetry.sdk.name", "jitney"), ("telemetry.sdk.language", "rust"), ("telemetry.sdk.version", SCOPE.1)];
    let given = given.into_iter().map(|(key, value)| attribute(&key, value));
    given.chain(own.map(|(key, value)| attribute(key, value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thousand_are_found_by_their_requests() {
        let mut store = Store::new(vec![("service.name".into(), "m".into())]);
        for number in 0..=MOST {
            let span = Span { name: number.to_string(), trace_id: vec![0xab; 2], ..Span::default() };
            store.add(vec![format!("r{number}").as_str().into(), "all".into()], [span].into());
        }
        assert_eq!(store.find("r0"), None);
        let found = store.find("r7").unwrap();
        let spans = &found["resourceSpans"][0]["scopeSpans"][0]["spans"];
        assert_eq!(
            (&spans[0]["name"], &spans[0]["traceId"], spans.as_array().unwrap().len()),
            (&"7".into(), &"abab".into(), 1)
        );
        let all = store.find("all").unwrap();
        assert_eq!(all["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().len(), MOST);
        store.add(vec!["r7".into()], [Span { trace_id: 0xab7u128.to_be_bytes().into(), ..Span::default() }].into());
        let of_trace = store.find("00000000000000000000000000000AB7").unwrap();
        let spans = of_trace["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        assert_eq!(spans.len(), 2, "with the other spans of its request");
        assert!(store.find("00000000000000000000000000000ab8").is_none() && store.find("ab7").is_none());
        let many: Vec<Span> = (0..MOST_SPANS).map(|_| Span::default()).collect();
        store.add(vec!["many".into()], many.into());
        assert!(store.find("all").is_none() && store.find("many").is_some());
        assert_eq!(all["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"], "m");
    }
}
