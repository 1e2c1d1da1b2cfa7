"""Several parameters, not all of them arrays: an item is an object with a field for each, `predict` gets columns."""

# ruff: noqa: PLC0415 -- numpy is heavy: imported where it is used

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from jitney.codecs.decode.decoded import Decoded
from jitney.codecs.decode.items import ItemReader

if TYPE_CHECKING:
    from jitney._core import Batch


class MixedReader:
    """Reads objects, and gives each parameter of `predict` the values of its field."""

    def __init__(self, objects: ItemReader, stacked: Mapping[str, bool]) -> None:
        self._objects: Final = objects
        self._stacked: Final = stacked
        """By parameter: whether its arrays are stacked, n first."""

    def read(self, batch: "Batch") -> Decoded:
        """Decode and validate every item."""
        return self._objects.read(batch)

    def take(self, decoded: Decoded, positions: Sequence[int] | None) -> tuple[Any, ...]:
        """Return a list for each parameter, or a new array."""
        return self._columns(*self._objects.take(decoded, positions))

    def take_again(self, decoded: Decoded, positions: Sequence[int], batch: "Batch") -> tuple[Any, ...]:
        """Return the same of items that are decoded anew."""
        return self._columns(*self._objects.take_again(decoded, positions, batch))

    def keep(self, decoded: Decoded, positions: Sequence[int], batch: "Batch") -> Callable[[], Decoded]:
        """Decode these items anew in each call of what is returned."""
        return self._objects.keep(decoded, positions, batch)

    def one(self, decoded: Decoded, position: int) -> tuple[Any, ...]:
        """Return the fields of one item."""
        item = decoded.columns[0][position]
        return tuple(getattr(item, name) for name in self._stacked)

    def from_python(self, values: list[Any]) -> Decoded:
        """Take one dict per item, or a tuple in the order of the parameters."""
        return self._objects.from_python([self._named(value) for value in values])

    def _named(self, value: Any) -> Any:
        if not isinstance(value, tuple):
            return value
        row = cast("tuple[Any, ...]", value)
        return dict(zip(self._stacked, row, strict=True)) if len(row) == len(self._stacked) else row

    def _columns(self, items: list[Any]) -> tuple[Any, ...]:
        columns: list[Any] = []
        for name, is_stacked in self._stacked.items():
            column = [getattr(item, name) for item in items]
            columns.append(_stack(column) if is_stacked else column)
        return tuple(columns)


def _stack(arrays: list[Any]) -> Any:
    import numpy as np

    return np.stack(arrays)
