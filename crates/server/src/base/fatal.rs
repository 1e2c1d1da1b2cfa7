//! Why a server has to end: its exit code and what the terminal says.

use std::pin::Pin;

/// Something that takes its time and may end the engine: its start, its end.
pub type Doing = Pin<Box<dyn Future<Output = Result<(), Fatal>> + Send>>;

/// The exit code that asks the parent process to start the server again, because files of its targets have changed.
pub const CHANGED: i32 = 75;

/// The exit code of a fault in the server itself.
pub const BROKEN: i32 = 70;

/// Why a server has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// The exit code.
    pub code: i32,
    /// For the terminal.
    pub text: String,
}

impl Fatal {
    /// A failure that the user can fix: exit code 1.
    pub fn new(text: impl Into<String>) -> Fatal {
        Fatal { code: 1, text: text.into() }
    }

    /// A fault in the server itself: exit code 70. `what` is the part that ended, `how` is its last message.
    pub fn broken(what: &str, how: &str) -> Fatal {
        Fatal { code: BROKEN, text: format!("{what} has ended: {how}; please report this") }
    }

    /// Files of the targets have changed: the parent process starts the server again.
    pub fn changed(what: &str) -> Fatal {
        Fatal { code: CHANGED, text: format!("{what}; starting again") }
    }

    /// Whether the fault is in the server itself.
    pub fn is_broken(&self) -> bool {
        self.code == BROKEN
    }
}
