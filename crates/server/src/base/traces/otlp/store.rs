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

    /// The traces of the request that has this id, and of the batches that it was in.
    pub(crate) fn find(&self, request_id: &str) -> Option<serde_json::Value> {
        let is_of = |stored: &&Stored| stored.request_ids.iter().any(|id| **id == *request_id);
        let mut found = self.traces.iter().filter(is_of).peekable();
        found.peek()?;
        Some(json::document(&self.resource, SCOPE, found.flat_map(|stored| stored.spans.iter())))
    }
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
        let many: Vec<Span> = (0..MOST_SPANS).map(|_| Span::default()).collect();
        store.add(vec!["many".into()], many.into());
        assert!(store.find("all").is_none() && store.find("many").is_some());
        assert_eq!(all["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"], "m");
    }
}
