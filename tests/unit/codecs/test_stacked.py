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


def test_what_a_predict_wrote_into_its_arrays_is_gone_when_it_is_called_again() -> None:
    arrays = [np.full((2, 3), n, np.float32) for n in range(4)]
    batch = FakeBatch(arrays=[arrays])
    reader = ArrayReader((ArraySpec("x", "float32", None),))
    decoded = reader.read(batch.core)
    reader.take(decoded, range(4))[0][:] = 9
    [again] = reader.take_again(decoded, range(1, 3), batch.core)
    np.testing.assert_array_equal(again, arrays[1:3])
    assert batch.restored == [[1, 2]]


def test_arrays_that_were_copied_to_be_stacked_are_stacked_again() -> None:
    arrays = [np.ones((2, 3), np.float32), np.ones((2, 4), np.float32), np.full((2, 3), 2, np.float32)]
    batch = FakeBatch(arrays=[arrays])
    reader = ArrayReader((ArraySpec("x", "float32", None),))
    decoded = reader.read(batch.core)
    reader.take(decoded, range(2))[0][:] = 9
    [again] = reader.take_again(decoded, range(1, 2), batch.core)
    np.testing.assert_array_equal(again, arrays[2:])
    assert batch.restored == [], "what was received is as it was"


def test_an_array_that_tests_the_model_is_the_same_in_each_test() -> None:
    batch = FakeBatch(arrays=[[np.ones((2, 3), np.float32)]])
    reader = ArrayReader((ArraySpec("x", "float32", None),))
    decoded = reader.read(batch.core)
    kept = reader.keep(decoded, range(1), batch.core)
    for write in (decoded, kept(), kept()):
        assert write.columns[0].tolist() == [[[1.0] * 3] * 2]
        write.columns[0][:] = 9


def test_arrays_that_are_not_stacked_share_a_batch_whatever_their_shapes() -> None:
    arrays = [np.ones(3, np.float32), np.ones((2, 2), np.float32), np.ones(0, np.float32), np.ones(3, np.int8)]
    batch = FakeBatch(arrays=[arrays])
    reader = ArrayReader((ArraySpec("x", "float32", None, is_stacked=False),))
    decoded = reader.read(batch.core)
    assert [(index, error.field) for index, error in decoded.errors] == [(3, "$.x")]
    [given] = reader.take(decoded, range(3))
    assert [array.shape for array in given] == [(3,), (2, 2), (0,)]
    for array in given:
        array[...] = 9
    given.clear()
    [again] = reader.take_again(decoded, [0, 1], batch.core)
    assert [array.tolist() for array in again] == [[1.0] * 3, [[1.0] * 2] * 2]
    assert batch.restored == [[0, 1]]
    [others] = reader.take(decoded, [0, 2])
    assert [array.shape for array in others] == [(3,), (0,)]


def test_a_list_of_arrays_next_to_stacked_ones_is_given_anew() -> None:
    signals, masks = [np.ones(n, np.float32) for n in range(3)], [np.zeros(2, np.uint8) for _ in range(3)]
    batch = FakeBatch(arrays=[signals, masks])
    reader = ArrayReader((ArraySpec("x", "float32", None, is_stacked=False), ArraySpec("m", "uint8", (2,))))
    decoded = reader.read(batch.core)
    x, m = reader.take(decoded, range(3))
    m[:] = 1
    x[2][:] = 7
    x, m = reader.take_again(decoded, range(1, 3), batch.core)
    assert ([array.tolist() for array in x], m.tolist()) == ([[1.0], [1.0, 1.0]], [[0, 0], [0, 0]])
    kept = reader.keep(decoded, range(1), batch.core)
    assert len(kept().columns) == 2
