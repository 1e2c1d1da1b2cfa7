//! The id by which the logs of the server and of its workers name a request.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// Longest id of a caller, in bytes.
pub(crate) const LONGEST: usize = 128;

/// The id of a request.
#[derive(Clone, Debug)]
pub enum CallId {
    /// The caller's own.
    Given(Arc<str>),
    /// Made here, as a number until somebody reads it.
    Fresh(u64),
}

impl Default for CallId {
    fn default() -> CallId {
        CallId::Fresh(fresh())
    }
}

impl CallId {
    /// The caller's; `None` if it is not fit to be repeated in headers and logs.
    pub fn given(text: &str) -> Option<CallId> {
        is_fit(text.as_bytes()).then(|| CallId::Given(text.into()))
    }

    /// As text.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            CallId::Given(text) => Cow::Borrowed(text),
            CallId::Fresh(number) => Cow::Owned(String::from_utf8_lossy(&hex(*number)).into_owned()),
        }
    }
}

/// The same text is the same id.
impl PartialEq for CallId {
    fn eq(&self, other: &CallId) -> bool {
        match (self, other) {
            (CallId::Fresh(one), CallId::Fresh(other)) => one == other,
            _ => self.text() == other.text(),
        }
    }
}

impl Eq for CallId {}

/// Whether an id of a caller may be repeated in headers and logs: 1 to 128 characters of visible ASCII.
pub(crate) fn is_fit(id: &[u8]) -> bool {
    (1..=LONGEST).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

/// A new id: different from every other of this process, and hard to confuse with those of another.
pub(crate) fn fresh() -> u64 {
    static START: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one("request"));
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // An odd factor and xor-shifts map different counts to different ids.
    let mixed = (NEXT.fetch_add(1, Ordering::Relaxed) ^ *START).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// Sixteen digits.
pub(crate) fn hex(number: u64) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|place| DIGITS[(number >> (60 - 4 * place)) as usize & 15])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_not_fit_for_a_log_is_refused() {
        for (id, is_fit) in [("abc-1", true), ("", false), ("a b", false), ("a\nb", false), ("\u{e9}", false)] {
            assert_eq!(CallId::given(id).is_some(), is_fit, "{id:?}");
        }
        assert!(CallId::given(&"x".repeat(LONGEST)).is_some() && CallId::given(&"x".repeat(LONGEST + 1)).is_none());
    }
}
