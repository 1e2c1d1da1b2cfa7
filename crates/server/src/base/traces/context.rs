//! The trace context of W3C: the `traceparent` that requests bring and that models get.

use crate::base::traces::messages::Link;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// Bytes of a `traceparent` of version 0.
pub(crate) const PARENT_BYTES: usize = 55;
/// Longest `tracestate` that is passed on.
const STATE_BYTES: usize = 512;
const SAMPLED: u8 = 1;

/// One span of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    /// Whether those above it keep their spans.
    pub(crate) is_sampled: bool,
}

impl TraceContext {
    /// Reads a `traceparent`; `None` of a text that is none.
    pub(crate) fn parse(text: &str) -> Option<TraceContext> {
        let fields = text.get(..PARENT_BYTES)?;
        let (version, rest) = (hex(fields.get(..2)?)?, text.get(PARENT_BYTES..)?);
        let is_known = version == 0 && rest.is_empty();
        // What a later version adds comes behind a dash.
        let is_later = (1..0xff).contains(&version) && (rest.is_empty() || rest.starts_with('-'));
        let has_dashes = [2, 35, 52].iter().all(|&place| fields.as_bytes()[place] == b'-');
        let (trace, span) = (hex(fields.get(3..35)?)?, hex(fields.get(36..52)?)? as u64);
        let flags = hex(fields.get(53..55)?)? as u8;
        let is_context = (is_known || is_later) && has_dashes && trace != 0 && span != 0;
        is_context.then_some(TraceContext { trace, span, is_sampled: flags & SAMPLED != 0 })
    }

    /// A new trace.
    pub(crate) fn root() -> TraceContext {
        let trace = u128::from(fresh()) << 64 | u128::from(fresh());
        TraceContext { trace, span: fresh(), is_sampled: false }
    }

    /// Writes it as a `traceparent`.
    pub(crate) fn write(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(b"00-");
        text.extend_from_slice(&digits::<32>(self.trace));
        text.push(b'-');
        text.extend_from_slice(&digits::<16>(u128::from(self.span)));
        text.extend_from_slice(if self.is_sampled { b"-01" } else { b"-00" });
    }

    /// The link to this span.
    pub(crate) fn link(&self) -> Link {
        Link {
            trace_id: self.trace.to_be_bytes().to_vec(),
            span_id: self.span.to_be_bytes().to_vec(),
            flags: u32::from(self.is_sampled),
            ..Link::default()
        }
    }
}

/// A `tracestate` that may be passed on; empty for one that may not.
pub(crate) fn passable(state: &str) -> &str {
    let is_passable = state.len() <= STATE_BYTES && state.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if is_passable { state } else { "" }
}

/// A number that no other span of this process has, and that is hard to confuse with those of other processes. It is not 0.
pub(crate) fn fresh() -> u64 {
    thread_local! {
        // A counter that threads share would cost more than the rest. Each begins at random.
        static NEXT: Cell<u64> = Cell::new(RandomState::new().hash_one("span"));
    }
    let mixed = NEXT.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    NEXT.set(mixed);
    mix(mixed)
}

/// Another number for each number; it is not 0.
pub(crate) fn mix(number: u64) -> u64 {
    // The finalizer of splitmix64: it maps different counts to different numbers, and all bits change.
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).max(1)
}

fn hex(digits: &str) -> Option<u128> {
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit));
    is_hex.then(|| u128::from_str_radix(digits, 16).ok())?
}

fn digits<const N: usize>(number: u128) -> [u8; N] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|place| DIGITS[(number >> (4 * (N - 1 - place))) as usize & 15])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_is_written_as_it_was_read() {
        for text in [PARENT, &PARENT.replace("-01", "-00")] {
            let (context, mut written) = (TraceContext::parse(text).unwrap(), Vec::new());
            context.write(&mut written);
            assert_eq!(String::from_utf8(written).unwrap(), text);
        }
    }

    #[test]
    fn a_text_that_is_no_context_is_refused() {
        let later = PARENT.replacen("00", "cc", 1);
        for (text, is_context) in [
            (PARENT.to_owned(), true),
            (format!("{PARENT}-"), false),
            (PARENT[..54].to_owned(), false),
            (PARENT.to_uppercase(), false),
            (PARENT.replacen("00", "ff", 1), false),
            (PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)), false),
            (PARENT.replace("b7ad6b7169203331", &"0".repeat(16)), false),
            (PARENT.replace('-', "_"), false),
            (PARENT.replace("0af7", "+af7"), false),
            (PARENT.replace("0af7", "\u{e9}7"), false),
            (later.clone(), true),
            (format!("{later}-more"), true),
            (format!("{later}more"), false),
            (String::new(), false),
        ] {
            assert_eq!(TraceContext::parse(&text).is_some(), is_context, "{text}");
        }
    }

    #[test]
    fn numbers_differ() {
        assert_eq!((0..10_000).map(|_| fresh()).collect::<HashSet<_>>().len(), 10_000);
        assert_ne!(TraceContext::root().trace, TraceContext::root().trace);
    }

    #[test]
    fn only_a_state_that_fits_is_passed_on() {
        assert_eq!((passable("a=1,b=2"), passable("a=\n"), passable(&"x".repeat(513))), ("a=1,b=2", "", ""));
    }
}
