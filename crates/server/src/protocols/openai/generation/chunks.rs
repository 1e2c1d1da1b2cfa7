//! Answers in parts: chunks as server-sent events without names or ids, and `[DONE]` as the last.

use crate::protocols::openai::error;
use crate::protocols::openai::generation::answer::{Envelope, Tokens, text};
use crate::protocols::openai::generation::text_route::TextRoute;
use crate::protocols::reply::parts::form::PartsForm;
use crate::protocols::reply::value::json_string;
use crate::values::answer::{Failure, OutputPart, StreamEnd};

/// The form of one answer.
#[derive(Debug)]
pub(super) struct ChunkForm {
    route: TextRoute,
    /// How each event begins, up to its choices.
    begin: Vec<u8>,
    /// How each chunk ends, behind its choices.
    end: &'static str,
    tokens: Tokens,
    includes_usage: bool,
    /// What was sent of each item, as far as something was.
    sent: Vec<Sent>,
}

/// What was sent of an item.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    role: bool,
    text: bool,
}

impl ChunkForm {
    /// `choices` is how many each input has.
    pub(super) fn new(envelope: &Envelope, choices: usize, includes_usage: bool) -> ChunkForm {
        ChunkForm {
            route: envelope.route,
            begin: [b"data: ", &envelope.begin(true)[..]].concat(),
            end: if includes_usage { "],\"usage\":null}\n\n" } else { "]}\n\n" },
            tokens: Tokens::new(choices),
            includes_usage,
            sent: Vec::new(),
        }
    }

    fn sent(&mut self, item: usize) -> &mut Sent {
        if self.sent.len() <= item {
            self.sent.resize(item + 1, Sent::default());
        }
        &mut self.sent[item]
    }

    /// One chunk: `write` writes the members of its choice between its index and why it ended.
    fn chunk(&self, out: &mut Vec<u8>, item: usize, reason: Option<&str>, write: impl FnOnce(&mut Vec<u8>)) {
        out.extend_from_slice(&self.begin);
        out.extend_from_slice(b"{\"index\":");
        out.extend_from_slice(itoa::Buffer::new().format(item).as_bytes());
        write(out);
        out.extend_from_slice(b",\"logprobs\":null,\"finish_reason\":");
        match reason {
            None => out.extend_from_slice(b"null"),
            Some(reason) => json_string(out, reason),
        }
        out.push(b'}');
        out.extend_from_slice(self.end.as_bytes());
    }

    /// Chats begin with who speaks.
    fn role(&mut self, out: &mut Vec<u8>, item: usize) {
        let is_first = !std::mem::replace(&mut self.sent(item).role, true);
        if is_first && self.route == TextRoute::Chat {
            self.chunk(out, item, None, |out| {
                out.extend_from_slice(b",\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
            });
        }
    }

    fn text(&mut self, out: &mut Vec<u8>, item: usize, text: &str) {
        self.role(out, item);
        if text.is_empty() {
            return;
        }
        self.sent(item).text = true;
        let (before, after) = match self.route {
            TextRoute::Chat => (",\"delta\":{\"content\":", "}"),
            TextRoute::Completions => (",\"text\":", ""),
        };
        self.chunk(out, item, None, |out| {
            out.extend_from_slice(before.as_bytes());
            json_string(out, text);
            out.extend_from_slice(after.as_bytes());
        });
    }
}

impl PartsForm for ChunkForm {
    fn part(&mut self, out: &mut Vec<u8>, item: usize, values: &[OutputPart]) -> Result<(), Failure> {
        let text = text(values)?;
        self.text(out, item, text);
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<u8>, item: usize, answer: &[OutputPart], end: &StreamEnd) -> Result<(), Failure> {
        // A model without parts gives a whole answer; others may give one too, which says the same as their parts.
        let whole = if answer.is_empty() || self.sent(item).text { "" } else { text(answer)? };
        self.text(out, item, whole);
        self.tokens.add(item, end.usage);
        let empty = match self.route {
            TextRoute::Chat => ",\"delta\":{}",
            TextRoute::Completions => ",\"text\":\"\"",
        };
        let reason = self.route.finish_reason(&end.reason);
        self.chunk(out, item, Some(reason), |out| out.extend_from_slice(empty.as_bytes()));
        Ok(())
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if self.includes_usage
            && let Some(usage) = self.tokens.written()
        {
            out.extend_from_slice(&self.begin);
            out.extend_from_slice(format!("]{usage}}}\n\n").as_bytes());
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn failure(&mut self, out: &mut Vec<u8>, failure: &Failure, request_id: &str) {
        error::write_event(out, failure, request_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::answer::Usage;
    use crate::values::tensor::Tag;
    use jitney_core::tables::outcome::Outcome;

    fn part(text: &str) -> [OutputPart; 1] {
        let data = text.to_owned().into();
        [OutputPart { name: "".into(), tag: Tag::Text, tensor: None, media_type: None, data }]
    }

    fn form(route: TextRoute, choices: usize, includes_usage: bool) -> ChunkForm {
        let envelope = Envelope { route, id: "id".into(), created: 7, model: "a \"model\"".into() };
        ChunkForm::new(&envelope, choices, includes_usage)
    }

    fn end(reason: &str, usage: Option<Usage>) -> StreamEnd {
        StreamEnd { reason: reason.into(), usage }
    }

    /// The choices of each event, or what it says in their place.
    fn events(out: &[u8]) -> Vec<String> {
        let text = std::str::from_utf8(out).unwrap();
        let events = text.strip_suffix("\n\n").unwrap().split("\n\n");
        events
            .map(|event| {
                let data = event.strip_prefix("data: ").unwrap();
                let Ok(chunk) = serde_json::from_str::<serde_json::Value>(data) else { return data.to_owned() };
                assert!(!data.contains('\n'), "{data}");
                assert_eq!((&chunk["id"], &chunk["created"]), (&"id".into(), &7.into()));
                let choice = &chunk["choices"][0];
                let said = choice.get("delta").or(choice.get("text")).unwrap_or(&chunk["usage"]);
                format!("{} {said} {}", choice["index"], choice["finish_reason"])
            })
            .collect()
    }

    #[test]
    fn a_chat_begins_with_its_role_and_ends_with_its_reason() {
        let (mut form, mut out) = (form(TextRoute::Chat, 1, false), Vec::new());
        form.part(&mut out, 0, &part("a\n")).unwrap();
        form.part(&mut out, 0, &part("")).unwrap();
        form.part(&mut out, 0, &part("b")).unwrap();
        form.end(&mut out, 0, &part("a\nb"), &end("length", None)).unwrap();
        form.close(&mut out);
        assert_eq!(
            events(&out),
            [
                r#"0 {"role":"assistant","content":""} null"#,
                r#"0 {"content":"a\n"} null"#,
                r#"0 {"content":"b"} null"#,
                r#"0 {} "length""#,
                "[DONE]"
            ]
        );
        assert!(!String::from_utf8(out).unwrap().contains("usage"));
    }

    #[test]
    fn a_model_without_parts_has_one_chunk_of_text() {
        let (mut form, mut out) = (form(TextRoute::Completions, 1, false), Vec::new());
        form.end(&mut out, 0, &part("whole"), &end("stop", None)).unwrap();
        form.close(&mut out);
        assert_eq!(events(&out), [r#"0 "whole" null"#, r#"0 "" "stop""#, "[DONE]"]);
    }

    #[test]
    fn choices_alternate_and_their_input_counts_once() {
        let (mut form, mut out) = (form(TextRoute::Chat, 2, true), Vec::new());
        let counts = Some(Usage { input: 5, output: 2 });
        form.part(&mut out, 1, &part("x")).unwrap();
        form.part(&mut out, 0, &part("y")).unwrap();
        form.end(&mut out, 1, &[], &end("stop", counts)).unwrap();
        form.end(&mut out, 0, &[], &end("stop", counts)).unwrap();
        form.close(&mut out);
        let role = r#"{"role":"assistant","content":""}"#;
        assert_eq!(
            events(&out),
            [
                &format!("1 {role} null"),
                r#"1 {"content":"x"} null"#,
                &format!("0 {role} null"),
                r#"0 {"content":"y"} null"#,
                r#"1 {} "stop""#,
                r#"0 {} "stop""#,
                r#"null {"prompt_tokens":5,"completion_tokens":4,"total_tokens":9} null"#,
                "[DONE]"
            ]
        );
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("\"usage\":null").count(), 6, "in all chunks but the last");
        assert!(text.contains("\"choices\":[],\"usage\":{"));
    }

    #[test]
    fn a_failure_is_an_event_of_its_own() {
        let (mut form, mut out) = (form(TextRoute::Chat, 1, false), Vec::new());
        form.failure(&mut out, &Failure::new(Outcome::WorkerLost, "its worker\nended"), "r");
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("data: {\"error\":{\"message\":\"its worker\\nended\"") && text.ends_with("}\n\n"));
        assert_eq!(text.matches('\n').count(), 2);
    }
}
