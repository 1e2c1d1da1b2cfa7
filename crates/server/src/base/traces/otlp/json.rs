//! Traces as JSON, as the JSON form of OTLP has them: names in camel case, ids as hex digits, 64-bit numbers as text.

use crate::base::traces::messages::{Event, KeyValue, Link, Span, Value};
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// A document of these spans.
pub(crate) fn document<'s>(resource: &[KeyValue], scope: (&str, &str), spans: impl Iterator<Item = &'s Span>) -> Json {
    let (name, version) = scope;
    json!({ "resourceSpans": [{
        "resource": { "attributes": attributes(resource) },
        "scopeSpans": [{ "scope": { "name": name, "version": version }, "spans": spans.map(span).collect::<Vec<_>>() }],
    }] })
}

fn span(span: &Span) -> Json {
    let mut json = json!({
        "traceId": hex(&span.trace_id),
        "spanId": hex(&span.span_id),
        "parentSpanId": hex(&span.parent_span_id),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": span.start_time_unix_nano.to_string(),
        "endTimeUnixNano": span.end_time_unix_nano.to_string(),
        "attributes": attributes(&span.attributes),
        "events": span.events.iter().map(event).collect::<Vec<_>>(),
        "links": span.links.iter().map(link).collect::<Vec<_>>(),
        "flags": span.flags,
    });
    if !span.trace_state.is_empty() {
        json["traceState"] = span.trace_state.as_str().into();
    }
    if span.dropped_links_count > 0 {
        json["droppedLinksCount"] = span.dropped_links_count.into();
    }
    if let Some(status) = &span.status {
        json["status"] = json!({ "message": status.message, "code": status.code });
    }
    json
}

fn event(event: &Event) -> Json {
    let attributes = attributes(&event.attributes);
    json!({ "timeUnixNano": event.time_unix_nano.to_string(), "name": event.name, "attributes": attributes })
}

fn link(link: &Link) -> Json {
    json!({ "traceId": hex(&link.trace_id), "spanId": hex(&link.span_id), "flags": link.flags })
}

fn attributes(all: &[KeyValue]) -> Json {
    all.iter().map(attribute).collect()
}

fn attribute(attribute: &KeyValue) -> Json {
    let value = match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::Text(text)) => json!({ "stringValue": text }),
        Some(Value::Bool(is_true)) => json!({ "boolValue": is_true }),
        Some(Value::Int(number)) => json!({ "intValue": number.to_string() }),
        Some(Value::Double(number)) => json!({ "doubleValue": number }),
        None => json!({}),
    };
    json!({ "key": attribute.key, "value": value })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
