"""What a batch is once it is decoded, and what every kind of input can do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Protocol

from jitney.errors import InvalidInput, ModelFailed

if TYPE_CHECKING:
    from jitney._core import Batch


IMMUTABLE: Final = frozenset({str, bytes, int, float, bool, NoneType})
"""Types of values that a `predict` cannot change once it has been given them, or has given them away."""


@dataclass(slots=True)
class Decoded:
    """The good items of a batch, and why the others are not.

    A position counts the good items (0 to len(indices) - 1); an index is a place in the batch.
    """

    indices: Sequence[int]
    """The good items' places in the batch; a range if all are good."""
    columns: list[Any]
    """Per parameter of `predict`: a list of values, or a stacked array, n first."""
    errors: list[tuple[int, InvalidInput | ModelFailed]] = field(
        default_factory=list[tuple[int, InvalidInput | ModelFailed]]
    )
    """Place in the batch, and what is wrong."""


def pick(values: Sequence[Any], positions: Sequence[int]) -> Sequence[Any]:
    """Return what is at these ascending positions; a range of them, which most batches are, costs one slice."""
    if isinstance(positions, range):
        return values[positions.start : positions.stop]
    return [values[position] for position in positions]


class Reader(Protocol):
    """One kind of input: how its items are decoded and how some of them become arguments."""

    def read(self, batch: "Batch") -> Decoded:
        """Decode and validate every item; a bad one never spoils another."""
        ...

    def take(self, decoded: Decoded, positions: Sequence[int] | None) -> tuple[Any, ...]:
        """Return the arguments of `predict` for these ascending positions, or for all."""
        ...

    def take_again(self, decoded: Decoded, positions: Sequence[int], batch: "Batch") -> tuple[Any, ...]:
        """Return what `take` returned before a `predict` had its hands on it."""
        ...

    def keep(self, decoded: Decoded, positions: Sequence[int], batch: "Batch") -> Callable[[], Decoded]:
        """Return what makes these items anew, also after their batch has ended; called before `predict`."""
        ...

    def one(self, decoded: Decoded, position: int) -> tuple[Any, ...]:
        """Return the arguments of a `predict` that takes one item."""
        ...

    def from_python(self, values: list[Any]) -> Decoded:
        """Take values as Python has them, with the same checks."""
        ...
