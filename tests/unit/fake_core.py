"""Batches and results as `jitney._core` gives them, without frames: what is decoded and encoded stays visible."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from jitney.codecs import tags

if TYPE_CHECKING:
    from jitney import _core


class FakeTensor(bytearray):
    """Bytes with dtype and shape: a `bytearray` because no class of ours has the buffer protocol before Python 3.12."""

    dtype: str
    shape: tuple[int, ...]
    stacked: bool


def tensor(array: Any, *, stacked: bool) -> FakeTensor:
    made = FakeTensor(np.ascontiguousarray(array).tobytes())
    made.dtype, made.shape, made.stacked = array.dtype.name, array.shape, stacked
    return made


class FakeBatch:
    """Items of (tag, value); of arrays one list of arrays per parameter."""

    def __init__(self, items: Sequence[tuple[int, Any]] = (), arrays: Sequence[Sequence[Any]] = ()) -> None:
        self.id = 1
        self._arrays = arrays
        self._lent: dict[int, list[FakeTensor]] = {}
        self.restored: list[list[int]] = []
        self._items = [(tags.TENSOR, None)] * len(arrays[0]) if arrays else list(items)
        self.ids = [100 + place for place in range(len(self._items))]
        self.tags = [tag for tag, _ in self._items]
        self.encodings = [tags.JSON] * len(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def wanted(self) -> list[bool]:
        return [True] * len(self)

    def values(self) -> list[Any]:
        return [value for _, value in self._items]

    def tensors(self, param: int) -> list[FakeTensor]:
        arrays = [np.asarray(array) for array in self._arrays[param]]
        if param not in self._lent:
            if len({(array.dtype, array.shape) for array in arrays}) == 1:
                self._lent[param] = [tensor(np.stack(arrays), stacked=True)]
            else:
                self._lent[param] = [tensor(array, stacked=False) for array in arrays]
        return self._lent[param]

    def restore(self, indices: Sequence[int]) -> None:
        self.restored.append(list(indices))
        for param, tensors in self._lent.items():
            for index in indices:
                sent = np.ascontiguousarray(self._arrays[param][index]).tobytes()
                start = index * len(sent) if tensors[0].stacked else 0
                tensors[0 if tensors[0].stacked else index][start : start + len(sent)] = sent

    @property
    def core(self) -> "_core.Batch":
        return cast("_core.Batch", self)


@dataclass
class Value:
    tag: int
    data: bytes
    media_type: str | None = None


@dataclass
class Error:
    reason: str
    detail: str
    field: str | None = None
    status: int | None = None
    retry_after_s: float | None = None


class FakeResults:
    """Keeps one outcome per item, and refuses a second one."""

    def __init__(self) -> None:
        self.outcomes: dict[int, Any] = {}

    def values(self, indices: Sequence[int], tag: int, data: Sequence[bytes], media_type: str | None = None) -> None:
        assert len(indices) == len(data)
        for index, encoded in zip(indices, data, strict=True):
            assert type(encoded) is bytes
            self._put(index, Value(tag, encoded, media_type))

    def rows(self, indices: Sequence[int], name: str, dtype: str, row_shape: Sequence[int], data: Any) -> None:
        buffer = memoryview(data)
        assert buffer.c_contiguous
        rows = np.frombuffer(data, dtype).reshape((len(indices), *row_shape))
        for index, row in zip(indices, rows, strict=True):
            if name:
                assert name not in self.outcomes.setdefault(index, {})
                self.outcomes[index][name] = row
            else:
                self._put(index, row)

    def error(self, index: int, *told: Any) -> None:
        self._put(index, Error(*told))

    def _put(self, index: int, outcome: object) -> None:
        assert index not in self.outcomes, f"item {index} has two outcomes"
        self.outcomes[index] = outcome

    @property
    def core(self) -> "_core.Results":
        return cast("_core.Results", self)
