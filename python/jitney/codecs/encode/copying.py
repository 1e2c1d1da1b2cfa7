"""Copies of answers: the next `predict` may write into every buffer that it has returned before."""

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from jitney.codecs.arrays import is_array_type
from jitney.codecs.decode.decoded import IMMUTABLE
from jitney.codecs.encode.answers import named_arrays
from jitney.types.image import Image, is_pillow_type
from jitney.types.response import Response

if TYPE_CHECKING:
    from jitney._core import Results

_TENSORS: Final = ("numpy", "torch", "cupy")
"""Libraries whose arrays are known to copy their data with `clone` or `copy`."""


class NotCopyable(Exception):
    """No copy of this output is known to be independent of the model; it must be encoded before the next `predict`."""


def copy_output(output: Any) -> Any:
    """Return a copy that the model cannot change, to be encoded later; NotCopyable if that cannot be.

    Dicts, structs and nested lists may refer to the model's buffers, and to copy them costs more than to encode them.
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
        raise NotCopyable
    return copier


@lru_cache(maxsize=1024)
def _find_copier(kind: type[Any]) -> Callable[[Any], Any] | None:
    if kind in IMMUTABLE:
        return _itself
    if kind in (bytearray, memoryview):
        return bytes
    if kind in (Image, Response):
        return Image.own if kind is Image else _response
    library = kind.__module__.partition(".")[0]
    if library == "PIL" and is_pillow_type(kind):
        return cast("Any", kind).copy
    if library in _TENSORS and is_array_type(kind):
        return getattr(kind, "clone", None) or getattr(kind, "copy", None)
    return None


def _itself(value: Any) -> Any:
    return value


def _response(answer: Response) -> Response:
    if type(answer.content) not in IMMUTABLE:
        raise NotCopyable
    return answer


class CopiedResults:
    """Takes outcomes as `Results` does and passes them on later; copies arrays, which `Results` only borrows."""

    def __init__(self) -> None:
        self._calls: list[Callable[[Results], None]] = []

    def values(self, indices: Sequence[int], tag: int, data: Sequence[bytes], media_type: str | None = None) -> None:
        """Take encoded values."""
        own = list(data)
        self._calls.append(lambda results: results.values(indices, tag, own, media_type))

    def rows(self, indices: Sequence[int], name: str, dtype: str, row_shape: Sequence[int], data: Any) -> None:
        """Take a copy of the rows of a numpy array."""
        own = data.copy()
        self._calls.append(lambda results: results.rows(indices, name, dtype, row_shape, own))

    def error(self, index: int, *verdict: Any) -> None:
        """Take the reason why an item has no answer."""
        self._calls.append(lambda results: results.error(index, *verdict))

    def write(self, results: "Results") -> None:
        """Pass everything on, in order."""
        for call in self._calls:
            call(results)
