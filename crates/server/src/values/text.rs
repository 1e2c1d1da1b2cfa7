//! Values of clients in messages: printable, and bounded.

use std::borrow::Cow;

/// A value of the client's in a message: printable, and bounded.
pub fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 80;
    let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)])
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    format!("`{text}{}`", if bytes.len() > SHOWN { "…" } else { "" })
}

/// A text that may quote a whole value of the client's: of a long one the beginning, and the end, which says where.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let (mut head, mut tail) = (most * 3 / 4, text.len() - most / 4);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    Cow::Owned(format!("{}…{}", &text[..head], &text[tail..]))
}

/// The message of a parser, cut to a length that fits into an error.
pub fn parser_message(error: &dyn std::fmt::Display) -> String {
    shortened(&error.to_string(), 240).into_owned()
}

/// A path, or a piece of one, without its `%XX`; `None` if it is not text.
pub(crate) fn decoded(path: &str) -> Option<Cow<'_, str>> {
    if !path.contains('%') {
        return Some(Cow::Borrowed(path));
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digit = |place: usize| after.get(place).and_then(|&digit| char::from(digit).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (byte, digit(0), digit(1)) {
            decoded.push((high * 16 + low) as u8);
            rest = &after[2..];
        } else {
            decoded.push(byte);
            rest = after;
        }
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}
