"""Answers made independent of the model: the next `predict` may reuse every buffer that it has returned before."""

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from jitney.codecs.answers import named_arrays
from jitney.codecs.decoded import IMMUTABLE
from jitney.codecs.plain import is_array_type
from jitney.types import Image, is_pillow_type

if TYPE_CHECKING:
    from jitney._core import Results

_TENSORS: Final = ("numpy", "torch", "cupy")
"""Libraries whose arrays are known to copy their data with `clone` or `copy`."""


class NotOwned(Exception):
    """Only encoding this output at once makes it independent."""


def owned(output: Any) -> Any:
    """Copy what the model may write into again, so that it can be encoded later; raises NotOwned if that cannot be.

    Whatever may hold references to the model's buffers (dicts, structs, nested lists) is not copied: that costs more
    than to encode it.
    """
    if isinstance(output, list):
        answers = cast("list[Any]", output)
        kinds: set[type[Any]] = set(map(type, answers))
        if kinds <= IMMUTABLE:
            return list(answers)
        copiers = {kind: _copier(kind) for kind in kinds}
        return [copiers[type(answer)](answer) for answer in answers]
    named = named_arrays(output)
    if not named:
        return _copier(cast("type[Any]", type(output)))(output)
    arrays = {name: _copier(cast("type[Any]", type(array)))(array) for name, array in named.items()}
    if isinstance(output, tuple):
        return cast("Any", output)._replace(**arrays)
    twin = copy.copy(output)
    for name, array in arrays.items():
        object.__setattr__(twin, name, array)  # it may be frozen
    return twin


def _copier(kind: type[Any]) -> Callable[[Any], Any]:
    copier = _find_copier(kind)
    if copier is None:
        raise NotOwned
    return copier


@lru_cache(maxsize=1024)
def _find_copier(kind: type[Any]) -> Callable[[Any], Any] | None:
    if kind in IMMUTABLE:
        return _itself
    if kind in (bytearray, memoryview):
        return bytes
    if kind is Image:
        return Image.own
    library = kind.__module__.partition(".")[0]
    if library == "PIL" and is_pillow_type(kind):
        return cast("Any", kind).copy
    if library in _TENSORS and is_array_type(kind):
        return getattr(kind, "clone", None) or getattr(kind, "copy", None)
    return None


def _itself(value: Any) -> Any:
    return value


class Kept:
    """Takes outcomes as `Results` does and keeps them; arrays, which `Results` only borrows, are copied."""

    def __init__(self) -> None:
        self._calls: list[Callable[[Results], None]] = []

    def values(self, indices: Sequence[int], tag: int, data: Sequence[bytes], media_type: str | None = None) -> None:
        """Keep encoded values."""
        own = list(data)
        self._calls.append(lambda results: results.values(indices, tag, own, media_type))

    def rows(self, indices: Sequence[int], name: str, dtype: str, row_shape: Sequence[int], data: Any) -> None:
        """Keep a copy of the rows of a numpy array."""
        own = data.copy()
        self._calls.append(lambda results: results.rows(indices, name, dtype, row_shape, own))

    def error(self, index: int, *told: Any) -> None:
        """Keep why an item has no answer."""
        self._calls.append(lambda results: results.error(index, *told))

    def write(self, results: "Results") -> None:
        """Pass everything on, in order."""
        for call in self._calls:
            call(results)
