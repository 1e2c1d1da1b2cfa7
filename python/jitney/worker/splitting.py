"""Which items made `predict` raise: call it on smaller and smaller parts of the batch until all others are answered.

It is given a way to call `predict` on some positions and does not know batches, links or codecs.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jitney.errors import NOT_NOW
from jitney.worker.health import raise_if_permanent
from jitney.worker.memory import is_out_of_memory, let_go


@dataclass(frozen=True, slots=True)
class Part:
    """What `predict` returned for some items."""

    positions: Sequence[int]
    output: object


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item has no answer."""

    error: BaseException
    alone: bool
    """`predict` raised while this item was alone; otherwise no call without an error contained it."""


@dataclass(slots=True)
class Split:
    """Every position once: in a part or among the failures."""

    is_out_of_memory: bool = False
    """The whole was too much for the memory of the device, so that it was computed in smaller parts."""

    parts: list[Part] = field(default_factory=list[Part])
    failures: dict[int, Failure] = field(default_factory=dict[int, Failure])

    def fail(self, positions: Sequence[int], error: BaseException, *, alone: bool = False) -> None:
        """Note that these items have no answer."""
        for position in positions:
            self.failures[position] = Failure(error, alone)


def extra_calls(n: int) -> int:
    """Bound the calls that may follow a failed call on `n` items: 4 ceil(log2 n)."""
    return 4 * (n - 1).bit_length()


def predict_split(
    predict: Callable[[Sequence[int]], object],
    positions: Sequence[int],
    *,
    retry: bool,
    is_down: Callable[[BaseException], bool] = lambda _: False,
) -> Split:
    """Call `predict` on all positions; if it raises and `retry` allows, on parts of them.

    One failing item among n costs at most 2 ceil(log2 n) extra calls, two cost at most twice that. Beyond the
    bound, what is unresolved fails with the error that it was part of. Whatever `predict` raises counts as its
    failure, SystemExit too: a model must not end its worker by accident. One that says that it cannot answer now is
    not asked again in parts: no single item is the cause.

    `is_down` says of an error that the model fails for every input. Then no item is the cause, and nothing is searched.
    """
    split = Split()
    error = _call(predict, positions, split)
    if error is None:
        return split
    split.is_out_of_memory = len(positions) > 1 and is_out_of_memory(error)
    if not retry or _is_final(positions, error):
        split.fail(positions, error, alone=len(positions) == 1)
    elif split.is_out_of_memory:
        _shrink(predict, positions, error, split)
    elif is_down(error):
        split.fail(positions, error)
    else:
        _search(predict, positions, error, split, extra_calls(len(positions)))
    return split


def _shrink(
    predict: Callable[[Sequence[int]], object], positions: Sequence[int], error: BaseException, split: Split
) -> None:
    """Compute in parts of half the size, and of half of that: no item is the cause, the batch was only too large.

    Halves are not searched one by one: what did not fit once does not fit again, so that n items cost at most
    ceil(log2 n) calls that fail.
    """
    size, rest = (len(positions) + 1) // 2, positions
    let_go(error)
    while rest:
        some = rest[:size]
        raised = _call(predict, some, split)
        if raised is not None and len(some) > 1 and is_out_of_memory(raised):
            size = (len(some) + 1) // 2
            let_go(raised)
            continue
        if raised is not None and _is_final(some, raised):
            split.fail(some, raised, alone=len(some) == 1)
        elif raised is not None:
            _search(predict, some, raised, split, extra_calls(len(some)))
        rest = rest[size:]


def _search(
    predict: Callable[[Sequence[int]], object],
    positions: Sequence[int],
    error: BaseException,
    split: Split,
    budget: int,
) -> None:
    """Halve the parts that contain a failing item, largest first: that answers the most good items per call."""
    guilty = deque([(positions, error)])

    def is_innocent(half: Sequence[int], error: BaseException) -> bool:
        nonlocal budget
        if budget == 0:
            split.fail(half, error)
            return False
        budget -= 1
        raised = _call(predict, half, split)
        if raised is None:
            return True
        if _is_final(half, raised):
            split.fail(half, raised, alone=len(half) == 1)
        else:
            guilty.append((half, raised))
        return False

    while guilty:
        suspects, error = guilty.popleft()
        middle = (len(suspects) + 1) // 2
        left, right = suspects[:middle], suspects[middle:]
        if is_innocent(left, error) and len(right) > 1:
            guilty.append((right, error))  # the failing item is in this half: a call on the whole half is not needed
        else:
            is_innocent(right, error)


def _is_final(positions: Sequence[int], error: BaseException) -> bool:
    """Whether calls on parts of these would not show which item fails."""
    return len(positions) == 1 or isinstance(error, NOT_NOW)


def _call(predict: Callable[[Sequence[int]], object], positions: Sequence[int], split: Split) -> BaseException | None:
    try:
        split.parts.append(Part(positions, predict(positions)))
    except BaseException as error:
        raise_if_permanent(error)
        return error
    return None
