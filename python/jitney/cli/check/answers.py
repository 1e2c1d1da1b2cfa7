"""What came out of a model, for `jitney check`: collects encoded answers, shows them and compares them."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from jitney.codecs import tags
from jitney.types.image import Image
from jitney.types.response import Response

if TYPE_CHECKING:
    from jitney._core import Batch, Results

WIDTH = 100
TOLERANCE = 1e-3
BYTES_SHOWN = 12


@dataclass(slots=True)
class Answers:
    """Stands in for the results of a batch, and for the batch as far as encoding looks at it."""

    size: int
    values_: dict[int, tuple[int, bytes, str | None]] = field(default_factory=dict[int, tuple[int, bytes, str | None]])
    arrays: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    errors: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def results(self) -> "Results":
        """Pass for the results that a codec writes to."""
        return cast("Results", self)

    @property
    def batch(self) -> "Batch":
        """Pass for the batch that a codec encodes answers of."""
        return cast("Batch", self)

    @property
    def encodings(self) -> list[int]:
        """Every answer is wanted as JSON."""
        return [tags.JSON] * self.size

    def values(self, indices: Sequence[int], tag: int, data: Sequence[bytes], media_type: str | None = None) -> None:
        """Take encoded values."""
        for index, value in zip(indices, data, strict=True):
            self.values_[index] = (tag, bytes(value), media_type)

    def rows(self, indices: Sequence[int], name: str, dtype: str, row_shape: Sequence[int], data: Any) -> None:
        """Take rows of an array."""
        import numpy as np  # noqa: PLC0415 - only models that return arrays need it

        array = np.asarray(data, dtype).reshape(len(indices), *row_shape)
        for index, row in zip(indices, array, strict=True):
            self.arrays.setdefault(index, {})[name] = row

    def error(self, index: int, reason: str, detail: str, *more: Any) -> None:
        """Take a failure."""
        del more
        self.errors[index] = f"{reason}: {detail}"


def show_input(value: object) -> str:
    """Write an example with its type, in one line."""
    if isinstance(value, dict):
        named = cast("dict[str, object]", value)
        return _cut("{" + ", ".join(f"{name}: {show_input(part)}" for name, part in named.items()) + "}")
    if isinstance(value, Image):
        return f"Image {value.width} x {value.height}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _show_array(value)
    if isinstance(value, Response):
        media = f"{value.media_type}, " if value.media_type else ""
        return _cut(f"Response {media}{show_input(value.content)}")
    if isinstance(value, bytes) and len(value) > BYTES_SHOWN:
        return f"{len(value)} bytes {value[:BYTES_SHOWN]!r}…"
    shown, kind = repr(value), type(value).__name__
    return _cut(shown if shown.startswith(kind) else f"{kind} {shown}")


def show_answer(answers: Answers, index: int) -> str:
    """Write one answer with its type, in one line."""
    if index in answers.errors:
        return f"error {answers.errors[index]}"
    if index in answers.arrays:
        named = answers.arrays[index]
        return _cut(
            ", ".join(f"{name}: {_show_array(row)}" if name else _show_array(row) for name, row in named.items())
        )
    tag, data, media_type = answers.values_[index]
    if tag == tags.BYTES:
        return f"{media_type or 'bytes'}, {len(data)} bytes"
    return f"{tags.NAMES[tag]} {_cut(data.decode(errors='replace'))}"


def _show_array(array: Any) -> str:
    flat = array.reshape(-1)
    some = ", ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in flat[:4].tolist())
    return f"{array.dtype} {tuple(array.shape)} [{some}{', …' if flat.size > 4 else ''}]"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def alike(left: Answers, left_index: int, right: Answers, right_index: int) -> bool:
    """Say whether two answers are the same, but for rounding."""
    if left_index in left.arrays and right_index in right.arrays:
        ours, theirs = left.arrays[left_index], right.arrays[right_index]
        return ours.keys() == theirs.keys() and all(_alike_arrays(ours[name], theirs[name]) for name in ours)
    one, other = left.values_.get(left_index), right.values_.get(right_index)
    if one is None or other is None or one == other:
        return one == other
    if one[0] == other[0] == tags.JSON:
        return _alike_json(json.loads(one[1]), json.loads(other[1]))
    return False


def _alike_arrays(one: Any, other: Any) -> bool:
    import numpy as np  # noqa: PLC0415 - see `rows`

    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    return bool(np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE * 1e-2, equal_nan=True))


def _alike_json(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE * 1e-2)
    if isinstance(one, list) and isinstance(other, list):
        ours, theirs = cast("list[Any]", one), cast("list[Any]", other)
        return len(ours) == len(theirs) and all(map(_alike_json, ours, theirs))
    if isinstance(one, dict) and isinstance(other, dict):
        mine, yours = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return mine.keys() == yours.keys() and all(_alike_json(mine[key], yours[key]) for key in mine)
    return one == other
