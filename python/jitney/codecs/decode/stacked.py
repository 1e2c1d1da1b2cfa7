"""Items that are arrays: stacked with n first, as views of what was received wherever that is possible."""

# ruff: noqa: PLC0415 -- numpy is heavy: imported where it is used

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, cast

from jitney.codecs.arrays import is_array
from jitney.codecs.decode.decoded import Decoded, pick
from jitney.codecs.refusals import refusal
from jitney.errors import InvalidInput, ModelFailed
from jitney.signature.arrays import ArraySpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jitney._core import Batch, Tensor

_MOST_ROOM: Final = 1 << 40
"""Elements that an array without any may have room for: numpy counts them in 63 bits, times dtype and batch."""


class ArrayReader:
    """Reads one column per parameter of `predict`."""

    def __init__(self, specs: tuple[ArraySpec, ...]) -> None:
        self._specs: Final = specs
        self._are_stacked: Final = all(spec.is_stacked for spec in specs)

    def read(self, batch: "Batch") -> Decoded:
        """Wrap what was received: one view per parameter where all items agree, else item by item."""
        if not self._are_stacked:
            return self._read_singly(batch)
        columns: list[Any] = []
        for parameter, spec in enumerate(self._specs):
            tensors = batch.tensors(parameter)
            first = tensors[0]
            if len(tensors) != 1 or not first.stacked or self._mismatch(spec, first):
                return self._read_singly(batch)
            columns.append(_view(first))
        return Decoded(range(len(batch)), columns)

    def _read_singly(self, batch: "Batch") -> Decoded:
        columns = [self._rows(batch.tensors(parameter)) for parameter in range(len(self._specs))]
        return self._gather([[column[index] for column in columns] for index in range(len(batch))])

    @staticmethod
    def _rows(tensors: list["Tensor"]) -> list[Any]:
        """Return each item's array, or None where its shape is beyond numpy."""
        if len(tensors) == 1 and tensors[0].stacked:
            count, *shape = tensors[0].shape
            return list(_view(tensors[0])) if _is_makeable(shape) else [None] * count
        return [_view(tensor) if _is_makeable(tensor.shape) else None for tensor in tensors]

    @staticmethod
    def _mismatch(spec: ArraySpec, tensor: "Tensor") -> bool:
        shape = tuple(tensor.shape[1:])
        return tensor.dtype != spec.dtype or not spec.fits(shape) or not _is_makeable(shape)

    def _gather(self, items: list[list[Any]]) -> Decoded:
        """Stack the items that fit; those of another shape than the first good one cannot share its batch."""
        import numpy as np

        good: list[int] = []
        decoded = Decoded(good, [[] for _ in self._specs])
        for index, arrays in enumerate(items):
            try:
                self._check(arrays, decoded.columns)
            except InvalidInput as error:
                decoded.errors.append((index, error))
                continue
            good.append(index)
            for column, array in zip(decoded.columns, arrays, strict=True):
                column.append(array)
        decoded.columns = [
            np.stack(column) if column and spec.is_stacked else column
            for spec, column in zip(self._specs, decoded.columns, strict=True)
        ]
        return decoded

    def _check(self, arrays: list[Any], columns: list[Any]) -> None:
        for spec, array, column in zip(self._specs, arrays, columns, strict=True):
            if array is None:
                raise InvalidInput(f"`{spec.name}`: the axes of its shape are too long", field=f"$.{spec.name}")
            if array.dtype.name != spec.dtype or not spec.fits(array.shape):
                got = f"{array.dtype.name} of shape {tuple(array.shape)}"
                raise InvalidInput(f"`{spec.name}`: expected {spec.show()}, got {got}", field=f"$.{spec.name}")
            if spec.is_stacked and column and column[0].shape != array.shape:
                raise InvalidInput(
                    f"`{spec.name}`: its shape {tuple(array.shape)} is not that of its batch, {tuple(column[0].shape)}",
                    field=f"$.{spec.name}",
                )

    def take(self, decoded: Decoded, positions: Sequence[int] | None) -> tuple[Any, ...]:
        """Return the stacked arrays of these positions; a run of neighbours, or all of them, without a copy."""
        if positions is None:
            return tuple(column[:] if _is_list(column) else column for column in decoded.columns)
        first, count = positions[0], len(positions)
        if positions[-1] - first + 1 == count:  # they ascend
            # Views even of all: a `predict` may give its arrays another shape in place, and be called again.
            return tuple(column[first : first + count] for column in decoded.columns)
        return tuple(_pick(column, positions) for column in decoded.columns)

    def take_again(self, decoded: Decoded, positions: Sequence[int], batch: "Batch") -> tuple[Any, ...]:
        """Return what the client sent: an earlier `predict` may have written to its arrays."""
        are_copies = [not _is_list(column) and column.flags.owndata for column in decoded.columns]
        if not all(are_copies):
            batch.restore(pick(decoded.indices, positions))
        if any(are_copies) or not self._are_stacked:
            decoded = self._read_singly(batch)
        return self.take(decoded, positions)

    def keep(self, decoded: Decoded, positions: Sequence[int], batch: "Batch") -> Callable[[], Decoded]:
        """Copy these arrays; each call of what is returned copies them once more."""
        kept = [_copy(column) for column in self.take(decoded, positions)]
        return lambda: Decoded(range(len(positions)), [_copy(column) for column in kept])

    def one(self, decoded: Decoded, position: int) -> tuple[Any, ...]:
        """Return one item's arrays with their full shape; a scalar's is an array of no axes."""
        return tuple(column[position, ...] for column in decoded.columns)

    def from_python(self, values: list[Any]) -> Decoded:
        """Take one array per item; of several parameters a dict by name, or a tuple in their order."""
        items: list[list[Any]] = []
        errors: list[tuple[int, InvalidInput | ModelFailed]] = []
        places: list[int] = []
        for index, value in enumerate(values):
            try:
                items.append(
                    [_as_array(spec, part) for spec, part in zip(self._specs, self._parts(value), strict=True)]
                )
                places.append(index)
            except Exception as error:
                errors.append((index, refusal(error)))
        decoded = self._gather(items)
        errors += [(places[index], error) for index, error in decoded.errors]
        return Decoded(
            [places[index] for index in decoded.indices], decoded.columns, sorted(errors, key=lambda e: e[0])
        )

    def _parts(self, value: Any) -> list[Any]:
        if isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            missing = [spec.name for spec in self._specs if spec.name not in named]
            extra = [name for name in named if name not in {spec.name for spec in self._specs}]
            if missing or extra:
                names = ", ".join(spec.name for spec in self._specs)
                raise InvalidInput(f"expected the arrays {names}, got {', '.join(named)}")
            return [named[spec.name] for spec in self._specs]
        if len(self._specs) == 1:
            return [value]
        parts = list(cast("Sequence[Any]", value)) if isinstance(value, (tuple, list)) else [value]
        if len(parts) != len(self._specs):
            raise InvalidInput(f"expected {len(self._specs)} arrays, got {len(parts)}")
        return parts


def _is_list(column: Any) -> bool:
    """Whether the arrays of this column are not stacked."""
    return isinstance(column, list)


def _pick(column: Any, positions: Sequence[int]) -> Any:
    return pick(column, positions) if _is_list(column) else column[list(positions)]


def _copy(column: Any) -> Any:
    return [array.copy() for array in column] if _is_list(column) else column.copy()


def _as_array(spec: ArraySpec, value: Any) -> Any:
    """Nested lists take the parameter's dtype, as they do on the wire; an array keeps its own and is checked."""
    import numpy as np

    return np.asarray(value) if is_array(value) else np.asarray(value, dtype=spec.dtype)


def _is_makeable(shape: Sequence[int]) -> bool:
    return 0 not in shape or prod(filter(None, shape)) <= _MOST_ROOM


def _view(tensor: "Tensor") -> "NDArray[np.generic]":
    import numpy as np

    kind = np.dtype(tensor.dtype)
    if 0 in tensor.shape:
        return np.empty(tensor.shape, kind)
    return np.frombuffer(cast("Any", tensor), kind).reshape(tensor.shape)
