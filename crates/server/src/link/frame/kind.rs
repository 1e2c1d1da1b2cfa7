//! The one table of frame kinds: number, sender, meaning. A number is never used for something else.

macro_rules! kinds {
    ($($(#[doc = $meaning:literal])+ $name:ident = $number:literal,)+) => {
        /// What a frame is for. A receiver ends the link at a kind that it does not expect, reserved kinds included.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[doc = $meaning])+ $name = $number,)+
        }

        impl Kind {
            /// Every kind, in the order of their numbers.
            pub const ALL: &[Kind] = &[$(Kind::$name),+];

            /// The kind with this number.
            pub fn from_u8(number: u8) -> Option<Kind> {
                match number {
                    $($number => Some(Kind::$name),)+
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Worker: its number and the secret (JSON).
    Hello = 1,
    /// Worker: the deployments of its target (JSON).
    Manifest = 2,
    /// Worker: the stage of its start (JSON).
    Progress = 3,
    /// Worker: the model is loaded and warm (JSON).
    Ready = 4,
    /// Worker: the model cannot be loaded (JSON).
    Failed = 5,
    /// Either end: the answer to a ping.
    Pong = 6,
    /// Agent: what its machine has, and the workers that run there (JSON).
    Join = 7,
    /// Agent: a worker has exited (JSON).
    Exited = 8,
    /// Agent: the machine is about to go away.
    Leaving = 9,
    /// Agent: the process of a worker runs (JSON).
    WorkerStarted = 10,
    /// Agent: what a worker printed (JSON).
    Output = 11,
    /// Agent: where the threads of a worker are that is about to be killed (JSON).
    Stacks = 12,
    /// Worker: what its model has counted since the last such message (JSON).
    Measured = 13,
    /// Front: the replica that this worker becomes (JSON).
    Assign = 16,
    /// Front: finish and exit.
    Shutdown = 17,
    /// Either end: asks for a pong.
    Ping = 18,
    /// Front to agent: the agent has joined (JSON).
    Joined = 19,
    /// Front to agent: start a worker (JSON).
    Start = 20,
    /// Front to agent: kill a worker (JSON).
    Kill = 21,
    /// Front to agent: why the agent may not join (JSON).
    JoinRefused = 22,
    /// Front: the token for the worker's next connection (JSON).
    Token = 23,
    /// Front: a batch.
    Batch = 32,
    /// Front: an item was cancelled.
    Cancel = 33,
    /// Worker: `predict` begins on this batch.
    Started = 34,
    /// Worker: outcomes of items, or parts of them; a batch may have several such frames.
    Results = 35,
    /// Worker: one step of a model that works in steps, and what it brought of each item.
    Parts = 36,
    /// Worker: a model calls another deployment: the items of one request, and the items for which it asks.
    Ask = 37,
    /// Front: an item whose client does not read makes no further part, or may go on: its id and a byte, 1 or 0.
    Pause = 38,
    /// Front: the outcomes of an ask that were not sent as parts; the ask ends.
    Answered = 39,
    /// Worker: an ask was cancelled.
    Withdraw = 40,
    /// Worker: the batch has ended; no results of it follow.
    BatchEnd = 41,
    /// Front (reserved): more input for an item that runs.
    MoreInput = 42,
    /// Worker: asks for the inputs of some items of a batch that it computes.
    InputsAgain = 43,
    /// Front: these inputs, as a batch; items that have ended are left out.
    Inputs = 44,
    /// Program: its key (JSON).
    Dial = 48,
    /// Front: the deployments that a program may call (JSON).
    Welcome = 49,
    /// Front: why a program may not call (JSON); the connection ends.
    Refused = 50,
    /// Program: the items of one request.
    Call = 51,
    /// Front: the outcomes of a request that were not sent as parts; the request ends.
    Answers = 52,
    /// Program: a request was cancelled.
    Hangup = 53,
    /// Front: outcomes of some items of a request or of an ask, or parts of them; more frames of it follow.
    AnswerParts = 54,
    /// Program or worker: it has taken so many bytes of the parts of a request; the server may send as many more.
    PartsTaken = 55,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_kind_are_one_to_one() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|&number| Kind::from_u8(number).is_some()).collect();
        let numbers: Vec<u8> = Kind::ALL.iter().map(|&kind| kind as u8).collect();
        assert_eq!(known, numbers, "ascending, each once");
        assert!(numbers.iter().all(|&number| Kind::from_u8(number).is_some_and(|kind| kind as u8 == number)));
    }
}
