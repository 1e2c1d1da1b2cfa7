//! In what the two routes for texts differ.

use jitney_core::config::manifest::{Task, TaskKind};

/// One of the routes for texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/completions`
    Completions,
}

impl Api {
    /// What a deployment says that this route can call.
    pub(crate) fn task(self) -> TaskKind {
        match self {
            Api::Chat => TaskKind::Chat,
            Api::Completions => TaskKind::Completion,
        }
    }

    /// Of a task for this route whether it takes tokens in place of a text; `None` of other tasks.
    pub(crate) fn takes_tokens(self, task: Task) -> Option<bool> {
        match (self, task) {
            (Api::Chat, Task::Chat) => Some(false),
            (Api::Completions, Task::Completion { takes_tokens }) => Some(takes_tokens),
            _ => None,
        }
    }

    /// The field that has what is to be answered.
    pub(crate) fn input(self) -> &'static str {
        match self {
            Api::Chat => "messages",
            Api::Completions => "prompt",
        }
    }

    /// How ids of answers begin.
    pub(crate) fn id_prefix(self) -> &'static str {
        match self {
            Api::Chat => "chatcmpl-",
            Api::Completions => "cmpl-",
        }
    }

    /// What an answer, or a chunk of one, is called.
    pub(crate) fn object(self, is_chunk: bool) -> &'static str {
        match (self, is_chunk) {
            (Api::Chat, false) => "chat.completion",
            (Api::Chat, true) => "chat.completion.chunk",
            (Api::Completions, _) => "text_completion",
        }
    }

    /// Why a text ended, as one of the reasons of this route. Others are `stop`.
    pub(crate) fn finish_reason(self, reason: &str) -> &'static str {
        match (reason, self) {
            ("length", _) => "length",
            ("content_filter", _) => "content_filter",
            ("tool_calls", Api::Chat) => "tool_calls",
            ("function_call", Api::Chat) => "function_call",
            _ => "stop",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_clients_do_not_know_is_stop() {
        for (reason, chat, completion) in
            [("stop", "stop", "stop"), ("length", "length", "length"), ("tool_calls", "tool_calls", "stop")]
        {
            assert_eq!(Api::Chat.finish_reason(reason), chat);
            assert_eq!(Api::Completions.finish_reason(reason), completion);
        }
        assert_eq!(Api::Chat.finish_reason("end of sequence"), "stop");
    }
}
