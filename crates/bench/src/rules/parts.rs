//! Reads the body of an answer that comes in parts: server-sent events, or lines of JSON. Counts parts and keeps none.

use memchr::memchr;
use memchr::memmem::find;
use serde::Deserialize;
use serde_json::Value;

/// Whose streams they are: what counts as a part, and how one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// jitney's own: the event or the line `end` is the end.
    Native,
    /// OpenAI's chunks: those with text are parts, and `[DONE]` is the end.
    Openai,
    /// Any other server's: each event with data, or each line, is a part, and the end of the body is the end.
    Other,
}

/// The failure of an answer that is not a stream.
pub const NO_STREAM: &str = "no_stream";
/// The failure of a stream whose body ended before the stream did.
pub const NO_END: &str = "no_end";
/// The failure of a stream that said an error without a reason.
const ERROR: &str = "error_event";

/// How the parts are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Events,
    Lines,
}

/// The name of an event, as far as it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Name {
    #[default]
    Other,
    End,
    Error,
}

/// What an answer that came in parts says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streamed {
    /// How many parts it has.
    pub parts: u64,
    /// Tokens of the answer, if its end counts them.
    pub tokens: Option<u64>,
    /// Whether it said an error, or had no end.
    pub is_broken: bool,
    /// From the instant at which its request was due to its first part, in nanoseconds.
    pub first_part_ns: Option<u64>,
}

/// Takes a stream apart as its bytes come.
#[derive(Debug)]
pub struct PartReader {
    dialect: Dialect,
    /// `None`: it is not a stream.
    form: Option<Form>,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    name: Name,
    /// The data of the present event.
    data: Vec<u8>,
    has_data: bool,
    parts: u64,
    tokens: Option<u64>,
    is_over: bool,
    failure: Option<String>,
}

impl PartReader {
    /// The body of an answer with this media type.
    pub fn new(dialect: Dialect, media_type: &[u8]) -> PartReader {
        let media_type = media_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        let forms: [(&[u8], Form); 3] = [
            (b"text/event-stream", Form::Events),
            (b"application/x-ndjson", Form::Lines),
            (b"application/jsonl", Form::Lines),
        ];
        let form = forms.into_iter().find(|(name, _)| media_type.eq_ignore_ascii_case(name)).map(|(_, form)| form);
        // Some servers do not say the type of what they stream.
        let form = form.or((dialect == Dialect::Other).then_some(Form::Lines));
        PartReader {
            dialect,
            form,
            line: Vec::new(),
            name: Name::default(),
            data: Vec::new(),
            has_data: false,
            parts: 0,
            tokens: None,
            is_over: false,
            failure: None,
        }
    }

    /// How many parts have come so far.
    pub fn parts(&self) -> u64 {
        self.parts
    }

    /// The next bytes of the body.
    pub fn read(&mut self, bytes: &[u8]) {
        let Some(form) = self.form else { return };
        let mut rest = bytes;
        while let Some(place) = memchr(b'\n', rest) {
            let (line, after) = (&rest[..place], &rest[place + 1..]);
            rest = after;
            if self.line.is_empty() {
                self.take(form, line);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.take(form, &whole);
                whole.clear();
                self.line = whole;
            }
        }
        self.line.extend_from_slice(rest);
    }

    /// The body is complete: what it said, and why it failed if it did.
    pub fn finish(mut self) -> (Streamed, Option<String>) {
        if self.form == Some(Form::Lines) && !self.line.is_empty() {
            let last = std::mem::take(&mut self.line);
            self.take(Form::Lines, &last);
        }
        let has_end = self.is_over || self.dialect == Dialect::Other;
        let failure = match self.form {
            None => Some(NO_STREAM.to_owned()),
            Some(_) => self.failure.or_else(|| (!has_end).then(|| NO_END.to_owned())),
        };
        let streamed =
            Streamed { parts: self.parts, tokens: self.tokens, is_broken: failure.is_some(), first_part_ns: None };
        (streamed, failure)
    }

    fn take(&mut self, form: Form, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match form {
            Form::Lines if !line.is_empty() => self.take_line(line),
            Form::Lines => {}
            Form::Events => self.take_field(line),
        }
    }

    fn take_line(&mut self, line: &[u8]) {
        match line {
            _ if line.starts_with(br#"{"end":"#) => self.end(line),
            _ if line.starts_with(br#"{"error""#) => self.fail(line),
            _ => self.parts += 1,
        }
    }

    /// A line of an event; the event is complete with an empty one.
    fn take_field(&mut self, line: &[u8]) {
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                let mut data = std::mem::take(&mut self.data);
                self.take_event(&data);
                data.clear();
                self.data = data;
            }
            self.name = Name::Other;
        } else if let Some(value) = line.strip_prefix(b"data:") {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        } else if let Some(value) = line.strip_prefix(b"event:") {
            self.name = match value.trim_ascii() {
                b"end" => Name::End,
                b"error" => Name::Error,
                _ => Name::Other,
            };
        }
    }

    fn take_event(&mut self, data: &[u8]) {
        match (self.name, self.dialect) {
            (Name::End, Dialect::Native | Dialect::Other) => self.end(data),
            (Name::Error, _) => self.fail(data),
            _ if data == b"[DONE]" => self.is_over = true,
            (_, Dialect::Openai | Dialect::Other) if data.starts_with(br#"{"error""#) => self.fail(data),
            (_, Dialect::Openai) if !has_text(data) => self.count_tokens(&document(data)),
            _ => self.parts += 1,
        }
    }

    fn end(&mut self, data: &[u8]) {
        self.is_over = true;
        self.count_tokens(&document(data));
    }

    fn count_tokens(&mut self, said: &Value) {
        let places = ["/usage/output", "/end/usage/output", "/usage/completion_tokens"];
        self.tokens = places.iter().find_map(|place| said.pointer(place)?.as_u64()).or(self.tokens);
    }

    fn fail(&mut self, data: &[u8]) {
        let said = document(data);
        let places = ["/reason", "/error/reason", "/error/code", "/error/type"];
        let reason = places.iter().find_map(|place| said.pointer(place)?.as_str());
        self.failure.get_or_insert_with(|| reason.unwrap_or(ERROR).to_owned());
    }
}

fn document(data: &[u8]) -> Value {
    serde_json::from_slice(data).unwrap_or_default()
}

/// Whether a chunk has text: a member `content` or `text` that is a string with something in it. A search is enough,
/// since a quote inside of a string is escaped.
fn has_text(chunk: &[u8]) -> bool {
    let names: [&[u8]; 2] = [br#""content":"#, br#""text":"#];
    names.into_iter().any(|name| {
        find(chunk, name).is_some_and(|place| {
            let value = chunk[place + name.len()..].trim_ascii_start();
            value.starts_with(b"\"") && !value.starts_with(b"\"\"")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EVENTS: &str = "text/event-stream; charset=utf-8";
    const NATIVE: &str = "data: \"a\"\n\n: \n\ndata: \"b\"\n\nevent: end\ndata: {\"reason\":\"stop\",\"usage\":{\"input\":1,\"output\":7}}\n\n";
    const CHAT: &str = concat!(
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\": \"\\\"text\\\":\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":9}}\n\n",
        "data: [DONE]\n\n",
    );

    fn read(dialect: Dialect, media_type: &str, body: &str) -> (Streamed, Option<String>) {
        let mut reader = PartReader::new(dialect, media_type.as_bytes());
        reader.read(body.as_bytes());
        reader.finish()
    }

    fn said(parts: u64, tokens: Option<u64>) -> (Streamed, Option<String>) {
        (Streamed { parts, tokens, ..Streamed::default() }, None)
    }

    #[test]
    fn parts_are_counted_and_comments_and_ends_are_not() {
        assert_eq!(read(Dialect::Native, EVENTS, NATIVE), said(2, Some(7)));
        let lines =
            "{\"part\":1}\n\n{\"part\":2}\n{\"end\":{\"reason\":\"stop\",\"usage\":{\"input\":1,\"output\":2}}}\n";
        assert_eq!(read(Dialect::Native, "application/x-ndjson", lines), said(2, Some(2)));
    }

    #[test]
    fn of_chunks_those_with_text_are_parts() {
        assert_eq!(read(Dialect::Openai, EVENTS, CHAT), said(2, Some(9)));
        let text = "data: {\"choices\":[{\"text\":\"a\"}]}\r\n\r\ndata: {\"choices\":[{\"text\":\"\"}]}\r\n\r\ndata: [DONE]\r\n\r\n";
        assert_eq!(read(Dialect::Openai, EVENTS, text), said(1, None));
    }

    #[test]
    fn other_servers_end_with_their_body() {
        assert_eq!(
            read(Dialect::Other, EVENTS, "data:x\n\nevent: message\nid: 1\ndata: y\ndata: z\n\n"),
            said(2, None)
        );
        assert_eq!(read(Dialect::Other, "application/jsonl", "{\"a\":1}\n[2]\n"), said(2, None));
        assert_eq!(read(Dialect::Other, "", "{\"a\":1}\r\n\r\n[2]"), said(2, None));
    }

    #[test]
    fn an_error_and_a_missing_end_are_failures_with_a_reason() {
        let problem = "data: 1\n\nevent: error\ndata: {\"status\":500,\"reason\":\"worker_lost\"}\n\n";
        let openai = "data: {\"error\":{\"message\":\"no\",\"code\":\"model_error\"}}\n\n";
        for (dialect, media_type, body, reason) in [
            (Dialect::Native, EVENTS, problem, "worker_lost"),
            (Dialect::Native, "application/x-ndjson", "{\"error\":{\"reason\":\"draining\"}}\n", "draining"),
            (Dialect::Openai, EVENTS, openai, "model_error"),
            (Dialect::Other, EVENTS, "data: {\"error\": 5}\n\n", ERROR),
            (Dialect::Native, EVENTS, "data: 1\n\n", NO_END),
            (Dialect::Openai, EVENTS, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n", NO_END),
            (Dialect::Openai, "application/json", "[1]", NO_STREAM),
            (Dialect::Native, "", "data: 1\n\nevent: end\ndata: {}\n\n", NO_STREAM),
        ] {
            let (streamed, failure) = read(dialect, media_type, body);
            assert_eq!((streamed.is_broken, failure.as_deref()), (true, Some(reason)), "{body}");
        }
    }

    #[test]
    fn a_part_of_ones_own_model_may_look_like_an_error() {
        let body = "data: {\"error\":1}\n\nevent: end\ndata: {}\n\n";
        assert_eq!(read(Dialect::Native, EVENTS, body), said(1, None));
    }

    proptest! {
        #[test]
        fn a_stream_is_the_same_in_whatever_pieces_it_comes(
            which in 0usize..2, cuts in prop::collection::vec(0usize..400, 0..12)
        ) {
            let (dialect, text) = [(Dialect::Native, NATIVE), (Dialect::Openai, CHAT)][which];
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| cut < text.len()).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut reader = PartReader::new(dialect, EVENTS.as_bytes());
            for piece in cuts.windows(2) {
                reader.read(&text.as_bytes()[piece[0]..piece[1]]);
            }
            prop_assert_eq!(reader.finish(), read(dialect, EVENTS, text));
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut reader = PartReader::new(Dialect::Openai, EVENTS.as_bytes());
            reader.read(&bytes);
            let _ = reader.finish();
        }
    }
}
