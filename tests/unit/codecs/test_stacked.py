"""Arrays whose shape is beyond what numpy can make are refused one by one, before numpy is asked."""

from typing import Any, cast

import numpy as np
import pytest
from fake_core import FakeBatch, FakeTensor, tensor
from jitney.codecs.decode.stacked import ArrayReader
from jitney.signature.arrays import ArraySpec

HUGE = [(0, 2**63 - 1), (2**63 - 1, 0), (2**40, 0, 2**40)]


class Given(FakeBatch):
    def __init__(self, count: int, tensors: list[FakeTensor]) -> None:
        super().__init__([(4, None)] * count)
        self.given = tensors

    def tensors(self, param: int) -> list[FakeTensor]:
        return self.given


def empty(shape: tuple[int, ...], *, stacked: bool) -> FakeTensor:
    made = FakeTensor(b"")
    made.dtype, made.shape, made.stacked = "float32", shape, stacked
    return made


def read(batch: Given) -> Any:
    return ArrayReader((ArraySpec("x", "float32", None),)).read(cast("Any", batch))


@pytest.mark.parametrize("shape", HUGE)
def test_a_batch_of_empty_arrays_with_endless_axes_is_refused(shape: tuple[int, ...]) -> None:
    decoded = read(Given(2, [empty((2, *shape), stacked=True)]))
    assert [(index, error.field) for index, error in decoded.errors] == [(0, "$.x"), (1, "$.x")]
    assert list(decoded.indices) == []


@pytest.mark.parametrize("shape", HUGE)
def test_an_empty_array_with_endless_axes_is_refused_alone(shape: tuple[int, ...]) -> None:
    good = np.ones((2, 3), np.float32)
    decoded = read(Given(3, [tensor(good, stacked=False), empty(shape, stacked=False), tensor(good, stacked=False)]))
    assert [index for index, _ in decoded.errors] == [1]
    assert (decoded.indices, decoded.columns[0].shape) == ([0, 2], (2, 2, 3))


def test_empty_arrays_of_sensible_shapes_are_taken() -> None:
    decoded = read(Given(2, [empty((2, 0, 1000), stacked=True)]))
    assert (decoded.errors, decoded.columns[0].shape) == ([], (2, 0, 1000))
