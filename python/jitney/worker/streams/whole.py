"""A generator as a function that returns whole answers: for warm-up, tests and checks, which take no parts."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, cast

from jitney.codecs import Codec
from jitney.config.layers import DeploymentOptions
from jitney.errors import InvalidOutput
from jitney.failures import shown
from jitney.types.steps import NOTHING, End, counted

MOST_STEPS: Final = 10_000
"""Steps after which an answer is taken for one that never ends."""
LONGEST_TEST_S: Final = 1.0
"""Longest test of a model that answers in parts: its worker does nothing else meanwhile."""


class Endless(InvalidOutput):
    """An example has an answer that did not end within the steps, seconds or bytes of a trial."""


def most_test_s(options: DeploymentOptions) -> float:
    """Return the seconds after which a test of the model goes on without the end of an answer in parts.

    The front takes a worker that says nothing for `batch_timeout_s` for hung.
    """
    return min(LONGEST_TEST_S, options.batch_timeout_s / 4)


def whole(  # noqa: PLR0913 -- what is named bounds a trial
    predict: Callable[..., Any],
    codec: Codec,
    *,
    batched: bool,
    most_s: float = float("inf"),
    most_bytes: float = float("inf"),
    on_part: Callable[[int, object], None] | None = None,
    clock: Callable[[], float] = perf_counter,
) -> Callable[..., object]:
    """Return a function that gives whole answers: it runs a generator to its end and joins the parts of each item.

    Each part is checked when it is made; `on_part` gets the index of its item and the part. Raises Endless after 10,000
    steps, after `most_s` seconds, or when the parts of an item have more than `most_bytes`.
    """
    if not codec.has_parts:
        return predict

    def call(*arguments: Any) -> object:
        items = [_Item() for _ in range(len(arguments[0]) if batched else 1)]
        began, made = clock(), 0
        made_steps = steps(predict(*arguments), lambda: [item.is_open for item in items], batched=batched)
        stream = _without_value(made_steps)
        with closing(stream):
            for outcomes in stream:
                made += 1
                for place, (item, outcome) in enumerate(zip(items, counted(outcomes, len(items)), strict=True)):
                    before = len(item.parts)
                    item.take(outcome)
                    if len(item.parts) > before:
                        _check(codec, items, place)
                        if on_part is not None:
                            on_part(place, item.parts[-1])
                still = [place for place, item in enumerate(items) if item.is_open]
                if not still:
                    break
                took_s = clock() - began
                longest = max(still, key=lambda place: items[place].bytes)
                if made >= MOST_STEPS or took_s > most_s or items[longest].bytes > most_bytes:
                    raise Endless(_endless(items, longest, made, took_s))
        answers = [codec.join(item.parts) if item.answer is NOTHING else item.answer for item in items]
        return answers if batched else answers[0]

    return call


def _check(codec: Codec, items: "Sequence[_Item]", place: int) -> None:
    """Check the newest part of an item. Only the first part is looked into, because that takes long."""
    item, part = items[place], items[place].parts[-1]
    try:
        if len(item.parts) == 1:
            codec.validate_part(part)
        else:
            codec.check_part(part)
    except InvalidOutput as error:
        raise InvalidOutput(f"{_name(items, place)}: {error}") from error.__cause__
    item.bytes += codec.size(part)


def _endless(items: "Sequence[_Item]", place: int, made: int, took_s: float) -> str:
    parts = items[place].parts
    said = f"it has {len(parts):,} parts, the last one is {shown(parts[-1])}" if parts else "it has no part"
    return (
        f"after {made:,} steps in {took_s:.1f} s {_name(items, place)} has not ended: {said}, together "
        f"{items[place].bytes:,} bytes; end it with jitney.End(), or take an example with a shorter answer"
    )


def _name(items: "Sequence[_Item]", place: int) -> str:
    return "the answer" if len(items) == 1 else f"the answer to item {place + 1} of {len(items)}"


@dataclass
class _Item:
    """What was said of an item."""

    parts: list[Any] = field(default_factory=list[Any])
    bytes: int = 0
    """About what the parts have together."""
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


def _without_value(stream: Generator[Sequence[Any], Any, Any]) -> Generator[Sequence[Any]]:
    """Yield what a generator yields. InvalidOutput if it returns a value, which no client would get."""
    returned = yield from stream
    if returned is not None:
        raise InvalidOutput(
            f"predict yields, so its `return {shown(returned)}` reaches no client; "
            "yield jitney.End(answer=…) as the last, or a part"
        )


def steps(stream: Any, wanted: Callable[[], Sequence[bool]], *, batched: bool) -> Generator[Sequence[Any], Any, Any]:
    """Yield what each step of a generator says, one outcome for each item; `wanted` is sent to it at each `yield`.

    Returns what the generator returns.
    """
    if not hasattr(stream, "__next__"):
        raise InvalidOutput(f"predict is annotated as a generator, but it returned a {type(stream).__qualname__}")
    send = cast("Callable[[Any], Any] | None", getattr(stream, "send", None)) if batched else None
    try:
        outcomes = next(stream)
        while True:
            yield outcomes if batched else (outcomes,)
            outcomes = send(wanted()) if send else next(stream)
    except StopIteration as ended:
        return ended.value
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
