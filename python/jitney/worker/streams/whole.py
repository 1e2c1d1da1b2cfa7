"""A generator as a function that returns whole answers: for warm-up, tests and checks, which take no parts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

from jitney.codecs import Codec
from jitney.errors import InvalidOutput
from jitney.types.steps import NOTHING, End


def whole(predict: Callable[..., Any], codec: Codec, *, batched: bool) -> Callable[..., object]:
    """Return a function that gives whole answers: it runs a generator to its end and joins the parts of each item."""
    if not codec.has_parts:
        return predict

    def call(*arguments: Any) -> object:
        items: list[list[Any]] = []
        answers: dict[int, Any] = {}
        for outcomes in steps(predict(*arguments), lambda: None, batched=batched):
            items = items or [[] for _ in outcomes]
            for place, outcome in enumerate(counted(outcomes, len(items))):
                if outcome is None or place in answers:
                    continue
                end = cast("End[Any]", outcome) if isinstance(outcome, End) else End(outcome)
                if isinstance(outcome, BaseException):
                    answers[place] = outcome
                elif end.part is not NOTHING:
                    items[place].append(end.part)
                if end.answer is not NOTHING:
                    answers[place] = end.answer
        joined = [answers[place] if place in answers else codec.join(parts) for place, parts in enumerate(items)]
        return joined if batched else joined[0] if joined else codec.join([])

    return call


def steps(stream: Any, wanted: Callable[[], Sequence[bool] | None], *, batched: bool) -> Iterator[Sequence[Any]]:
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


def counted(outcomes: Any, count: int) -> Sequence[Any]:
    """Return the outcomes of a step; InvalidOutput unless there is one for each item."""
    if not isinstance(outcomes, (list, tuple)):
        raise InvalidOutput(
            f"predict must yield a list with what is new of each item, but it yielded a {type(outcomes).__qualname__}"
        )
    sized = cast("Sequence[Any]", outcomes)
    if len(sized) != count:
        raise InvalidOutput(f"predict yielded {len(sized)} outcomes for {count} items; expected one per item, in order")
    return sized
