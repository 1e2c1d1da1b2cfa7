"""A generator as a function that returns whole answers: for warm-up, tests and checks, which take no parts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from jitney.codecs import Codec
from jitney.errors import InvalidOutput
from jitney.types.steps import NOTHING, End, counted


def whole(
    predict: Callable[..., Any], codec: Codec, *, batched: bool, on_part: Callable[[int, object], None] | None = None
) -> Callable[..., object]:
    """Return a function that gives whole answers: it runs a generator to its end and joins the parts of each item.

    `on_part` gets the index of an item and its part when that is made.
    """
    if not codec.has_parts:
        return predict

    def call(*arguments: Any) -> object:
        items = [_Item() for _ in range(len(arguments[0]) if batched else 1)]
        for outcomes in steps(predict(*arguments), lambda: [item.is_open for item in items], batched=batched):
            for place, (item, outcome) in enumerate(zip(items, counted(outcomes, len(items)), strict=True)):
                before = len(item.parts)
                item.take(outcome)
                if on_part is not None and len(item.parts) > before:
                    on_part(place, item.parts[-1])
            if not any(item.is_open for item in items):
                break
        answers = [codec.join(item.parts) if item.answer is NOTHING else item.answer for item in items]
        return answers if batched else answers[0]

    return call


@dataclass
class _Item:
    """What was said of an item."""

    parts: list[Any] = field(default_factory=list[Any])
    answer: Any = NOTHING
    is_open: bool = True

    def take(self, outcome: Any) -> None:
        """Take what a step says. After the end of the item it is ignored."""
        if outcome is None or not self.is_open:
            return
        if isinstance(outcome, BaseException):
            self.answer, self.is_open = outcome, False
        elif isinstance(outcome, End):
            end = cast("End[Any]", outcome)
            if end.part is not NOTHING:
                self.parts.append(end.part)
            self.answer, self.is_open = end.answer, False
        else:
            self.parts.append(outcome)


def steps(stream: Any, wanted: Callable[[], Sequence[bool]], *, batched: bool) -> Iterator[Sequence[Any]]:
    """Yield what each step of a generator says, one outcome for each item; `wanted` is sent to it at each `yield`."""
    if not hasattr(stream, "__next__"):
        raise InvalidOutput(f"predict is annotated as a generator, but it returned a {type(stream).__qualname__}")
    send = cast("Callable[[Any], Any] | None", getattr(stream, "send", None)) if batched else None
    try:
        with suppress(StopIteration):
            outcomes = next(stream)
            while True:
                yield outcomes if batched else (outcomes,)
                outcomes = send(wanted()) if send else next(stream)
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
