//! Items as protocols bring them: arrays out of documents, and the few fields that a group key or a cost is made of.
//! Nothing here knows HTTP.

use crate::values::answer::Failure;
use crate::values::text::parser_message;
use jitney_core::tables::outcome::Outcome;

/// Brackets within brackets that are followed; deeper documents are refused. `serde_json` has the same bound built in.
pub const DEPTH: usize = 128;

/// A document that holds an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document<'a> {
    /// JSON
    Json(&'a [u8]),
    /// msgpack
    Msgpack(&'a [u8]),
}

impl Document<'_> {
    /// Reads the whole document with `seed`; what cannot be parsed, or goes on after its end, is `malformed_body`.
    pub(crate) fn read<S, T>(self, seed: S) -> Result<T, Failure>
    where
        S: for<'de> serde::de::DeserializeSeed<'de, Value = T>,
    {
        match self {
            Document::Json(bytes) => {
                let mut reader = serde_json::Deserializer::from_slice(bytes);
                let value = seed.deserialize(&mut reader);
                value
                    .and_then(|value| reader.end().map(|()| value))
                    .map_err(|error| malformed("JSON", &json_fault(bytes, &error)))
            }
            Document::Msgpack(bytes) => {
                let mut rest = bytes;
                let value = {
                    let mut reader = rmp_serde::Deserializer::new(&mut rest);
                    reader.set_max_depth(DEPTH);
                    seed.deserialize(&mut reader).map_err(|error| malformed("msgpack", &error))?
                };
                if rest.is_empty() {
                    Ok(value)
                } else {
                    Err(malformed("msgpack", &format_args!("{} bytes follow the document", rest.len())))
                }
            }
        }
    }
}

/// What some editors and Windows' tools begin a file with.
const MARK: &[u8] = b"\xef\xbb\xbf";
const MARKED: &str = "it begins with a byte order mark (BOM), which JSON does not have; send UTF-8 without one";

/// Refuses a JSON document that begins with a byte order mark, where only the model would read it.
pub(crate) fn check_mark(document: &[u8]) -> Result<(), Failure> {
    if document.starts_with(MARK) { Err(malformed("JSON", &MARKED)) } else { Ok(()) }
}

/// Whether a failure says that of its document, and so all there is to say.
pub(crate) fn is_marked(failure: &Failure) -> bool {
    failure.detail.ends_with(MARKED)
}

/// What JSON has no words for, as others write it.
const STRANGE: [&[u8]; 4] = [b"NaN", b"nan", b"Infinity", b"inf"];

/// What is wrong with a JSON document; what other writers put into theirs is called by its name.
pub(crate) fn json_fault(document: &[u8], error: &serde_json::Error) -> String {
    if document.starts_with(MARK) {
        return MARKED.to_owned();
    }
    let lines = document.split_inclusive(|&byte| byte == b'\n').take(error.line().saturating_sub(1));
    // The parser stops at the first letter or the one behind it.
    let at = lines.map(<[u8]>::len).sum::<usize>() + error.column().saturating_sub(1);
    let around = document.get(at.saturating_sub(2)..).unwrap_or_default();
    let is_strange =
        (0..around.len().min(4)).any(|start| STRANGE.iter().any(|strange| around[start..].starts_with(strange)));
    if error.is_syntax() && is_strange {
        return format!(
            "it has no NaN and no infinities (line {} column {}); in lists of floats send null for NaN, or send \
             application/x-npy or application/msgpack",
            error.line(),
            error.column()
        );
    }
    parser_message(error)
}

pub(crate) fn malformed(format: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Outcome::MalformedBody, format!("the body is not valid {format}: {}", parser_message(error)))
}

/// An input that parses but is not what was asked for. `field` is a path such as `$.width`.
pub(crate) fn invalid(field: &str, what: &str) -> Failure {
    Failure { field: Some(field.to_owned()), ..Failure::new(Outcome::InvalidInput, format!("{field}: {what}")) }
}
