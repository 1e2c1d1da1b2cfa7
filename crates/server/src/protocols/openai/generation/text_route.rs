//! In what the two routes for texts differ.

use jitney_core::config::manifest::{Task, TaskKind};

/// One of the routes for texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextRoute {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/completions`
    Completions,
}

impl TextRoute {
    /// What a deployment says that this route can call.
    pub(crate) fn task(self) -> TaskKind {
        match self {
            TextRoute::Chat => TaskKind::Chat,
            TextRoute::Completions => TaskKind::Completion,
        }
    }

    /// Of a task for this route whether it takes tokens in place of a text; `None` of other tasks.
    pub(crate) fn takes_tokens(self, task: Task) -> Option<bool> {
        match (self, task) {
            (TextRoute::Chat, Task::Chat) => Some(false),
            (TextRoute::Completions, Task::Completion { takes_tokens }) => Some(takes_tokens),
            _ => None,
        }
    }

    /// The field that has what is to be answered.
    pub(crate) fn input(self) -> &'static str {
        match self {
            TextRoute::Chat => "messages",
            TextRoute::Completions => "prompt",
        }
    }

    /// How ids of answers begin.
    pub(crate) fn id_prefix(self) -> &'static str {
        match self {
            TextRoute::Chat => "chatcmpl-",
            TextRoute::Completions => "cmpl-",
        }
    }

    /// What an answer, or a chunk of one, is called.
    pub(crate) fn object(self, is_chunk: bool) -> &'static str {
        match (self, is_chunk) {
            (TextRoute::Chat, false) => "chat.completion",
            (TextRoute::Chat, true) => "chat.completion.chunk",
            (TextRoute::Completions, _) => "text_completion",
        }
    }

    /// Why a text ended, as one of the reasons of this route. Others are `stop`.
    pub(crate) fn finish_reason(self, reason: &str) -> &'static str {
        match (reason, self) {
            ("length", _) => "length",
            ("content_filter", _) => "content_filter",
            ("tool_calls", TextRoute::Chat) => "tool_calls",
            ("function_call", TextRoute::Chat) => "function_call",
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
            assert_eq!(TextRoute::Chat.finish_reason(reason), chat);
            assert_eq!(TextRoute::Completions.finish_reason(reason), completion);
        }
        assert_eq!(TextRoute::Chat.finish_reason("end of sequence"), "stop");
    }
}
