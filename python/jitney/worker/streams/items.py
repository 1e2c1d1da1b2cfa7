"""The items of one batch whose answers come in parts."""

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from jitney.codecs import Codec, Decoded, pick
from jitney.codecs.encode.copying import NotCopyable, copy_output
from jitney.codecs.refusals import NOT_WANTED, Verdict
from jitney.errors import InvalidOutput
from jitney.types.steps import NOTHING, End

if TYPE_CHECKING:
    from jitney._core import Batch, Results

PART_BYTES: Final = 64
"""Bytes that a part which waits takes next to its values: an answer of empty parts must have an end too."""


class Items:
    """What was sent of each item, and the parts that wait for the end of an item whose caller takes a whole answer.

    An item is named by its position in `decoded`. It is open until it has ended.
    """

    def __init__(
        self, codec: Codec, batch: "Batch", decoded: Decoded, results: "Results", max_answer_bytes: int
    ) -> None:
        self._codec: Final = codec
        self.batch: Final = batch
        self._decoded: Final = decoded
        self._ids: Final = batch.ids
        self._parts: Final = results.parts()
        streams = pick(batch.streams, decoded.indices)
        self._streams: Final = streams
        self._waiting: Final[list[list[Any]]] = [[] for _ in streams]
        self._waiting_bytes: Final = [0] * len(streams)
        self._most_bytes: Final = max_answer_bytes
        self._open: Final = [True] * len(streams)
        self._has_begun: Final = [False] * len(streams)
        self.results: Final = results
        self.has_news = False
        """Something was written that was not sent."""
        self.answered = 0
        """Items that have ended well."""

    def open(self, positions: Sequence[int]) -> list[int]:
        """Return those that have not ended."""
        return [position for position in positions if self._open[position]]

    def has_begun(self, position: int) -> bool:
        """Whether a part has left, so that the item cannot be computed anew."""
        return self._has_begun[position]

    def restart(self, positions: Sequence[int]) -> None:
        """Forget the parts that wait: these items are computed anew."""
        for position in positions:
            self._drop_waiting(position)

    def unwanted(self, positions: Sequence[int]) -> list[int]:
        """Return those that have not ended and that no request waits for any more."""
        wanted, cancelled, too_large = self.batch.wanted(), self.batch.cancelled(), self.results.too_large()

        def is_unwanted(position: int) -> bool:
            index = self._decoded.indices[position]
            if index in too_large:
                return True
            # The first part has moved the deadline: the front cancels what expires then.
            return cancelled[index] if self._has_begun[position] else not wanted[index]

        return [position for position in self.open(positions) if is_unwanted(position)]

    def leave_out_unwanted(self, positions: Sequence[int]) -> None:
        """End the items that no request waits for any more."""
        for position in self.unwanted(positions):
            self.fail(position, NOT_WANTED)

    def take(
        self, positions: Sequence[int], outcomes: Sequence[Any], failed: Callable[[int, BaseException], Verdict]
    ) -> None:
        """Take what a step says of each item. What it says of items that have ended is ignored.

        `failed` gives the verdict on an item for which the step says an exception.
        """
        ends: list[tuple[int, End[Any]]] = []
        parts: list[tuple[int, Any]] = []
        for position, outcome in zip(positions, outcomes, strict=True):
            if outcome is None or not self._open[position]:
                continue
            if isinstance(outcome, BaseException):
                self.fail(position, failed(position, outcome))
            elif not isinstance(outcome, End):
                parts.append((position, outcome))
            else:
                end = cast("End[Any]", outcome)
                ends.append((position, end))
                if end.part is not NOTHING:
                    parts.append((position, end.part))
        self._add_parts(parts, failed)
        for position, end in ends:
            if self._open[position]:
                self._end(position, end, failed)

    def end(self, positions: Sequence[int], failed: Callable[[int, BaseException], Verdict]) -> None:
        """End these items: the model says nothing more of them."""
        for position in self.open(positions):
            self._end(position, End(), failed)

    def later(self, position: int) -> None:
        """Give an item back: the model has no room for it now."""
        self.results.later(self._decoded.indices[position])
        self._close(position)

    def index(self, position: int) -> int:
        """Return the index of an item in its batch."""
        return self._decoded.indices[position]

    def id(self, position: int) -> int:
        """Return the id of an item."""
        return self._ids[self._decoded.indices[position]]

    def fail(self, position: int, verdict: Verdict) -> None:
        """End an item without an answer. It is sent with what comes next."""
        self.results.error(self._decoded.indices[position], *verdict)
        self._close(position)

    def _add_parts(self, parts: list[tuple[int, Any]], failed: Callable[[int, BaseException], Verdict]) -> None:
        sent = [(position, part) for position, part in parts if self._streams[position]]
        for position, part in parts:
            if not self._streams[position]:
                self._wait(position, part, failed)
        if not sent:
            return
        indices = [self._decoded.indices[position] for position, _ in sent]
        refused = dict(self._codec.write_parts([part for _, part in sent], indices, self.batch, self._parts))
        for (position, _), index in zip(sent, indices, strict=True):
            if index in refused:
                failed(position, refused[index])  # logs it; the codec has written the verdict
                self._close(position)
            else:
                self._has_begun[position] = self.has_news = True

    def _wait(self, position: int, part: Any, failed: Callable[[int, BaseException], Verdict]) -> None:
        try:
            self._codec.check_part(part)
        except InvalidOutput as error:
            self.fail(position, failed(position, error))
            return
        self._waiting_bytes[position] += PART_BYTES + self._codec.size(part)
        if self._waiting_bytes[position] <= self._most_bytes:
            self._waiting[position].append(_own(part))
            return
        detail = (
            f"the parts of this answer, with {PART_BYTES} bytes more for each of them, have more bytes than the "
            f"{self._most_bytes} that an answer may have (max_answer_bytes); yield less, or raise it"
        )
        self.fail(position, failed(position, InvalidOutput(detail)))

    def _end(self, position: int, end: "End[Any]", failed: Callable[[int, BaseException], Verdict]) -> None:
        index = self._decoded.indices[position]
        answers: list[Any] = []
        try:
            if end.answer is not NOTHING:
                answers = [end.answer]
            elif not self._streams[position]:
                answers = [self._codec.join(self._waiting[position])]
        except InvalidOutput as error:
            self.fail(position, failed(position, error))
            return
        for _, error in self._codec.write_answers(answers, [index], self.batch, self.results) if answers else ():
            failed(position, error)
            self._close(position)
            return
        usage = None if end.usage is None else (end.usage.input, end.usage.output)
        self.results.end(index, end.reason, usage)
        self.answered += 1
        self._close(position)

    def _close(self, position: int) -> None:
        self._open[position] = False
        self._drop_waiting(position)
        self.has_news = True

    def _drop_waiting(self, position: int) -> None:
        self._waiting[position].clear()
        self._waiting_bytes[position] = 0


def _own(part: Any) -> Any:
    """Return a part that the model cannot change any more."""
    try:
        [own] = copy_output([part])
    except NotCopyable:
        own = copy.deepcopy(part)
    return own
