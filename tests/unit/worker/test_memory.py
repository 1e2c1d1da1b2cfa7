"""A batch that is too large for the device's memory is computed in smaller parts, and no item fails because of it."""

import sys
import types
from collections.abc import Sequence

import jitney
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jitney.worker.memory import is_out_of_memory, let_go
from jitney.worker.splitting import predict_split


class OutOfMemoryError(RuntimeError):
    """As torch has it."""


class RuntimeException(Exception):
    """As onnxruntime has it."""


RuntimeException.__module__ = "onnxruntime.capi.onnxruntime_pybind11_state"


class Unsayable(RuntimeError):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        jitney.OutOfMemory("the card is full"),
        OutOfMemoryError("Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:73] . DefaultCPUAllocator: can't allocate memory: error code 12"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeException("Failed to allocate memory for requested buffer of size 1024"),
    ],
)
def test_what_libraries_raise_for_want_of_memory_is_known(error: Exception) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error", [ValueError("out of memory"), RuntimeError("shapes differ"), KeyboardInterrupt(), Unsayable()]
)
def test_other_errors_are_not_taken_for_it(error: BaseException) -> None:
    assert not is_out_of_memory(error)


class Device:
    """Holds `room` items at once."""

    def __init__(self, room: int, guilty: int | None = None) -> None:
        self.room, self.guilty = room, guilty
        self.fitted: list[list[int]] = []
        self.failed = 0

    def __call__(self, positions: Sequence[int]) -> object:
        if len(positions) > self.room:
            self.failed += 1
            raise OutOfMemoryError("Tried to allocate too much")
        if self.guilty in positions:
            raise ValueError("no")
        self.fitted.append(list(positions))
        return list(positions)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 200), st.integers(1, 200))
def test_every_item_is_answered_in_parts_that_fit(n: int, room: int) -> None:
    device = Device(room)
    split = predict_split(device, range(n), retry=True)
    assert not split.failures
    assert [position for part in split.parts for position in part.positions] == list(range(n))
    assert device.failed <= (n - 1).bit_length()
    assert split.is_out_of_memory == (n > room)


def test_an_item_that_does_not_fit_alone_fails_and_a_guilty_one_too() -> None:
    split = predict_split(Device(0), range(4), retry=True)
    assert set(split.failures) == {0, 1, 2, 3}
    assert all(failure.alone for failure in split.failures.values())
    split = predict_split(Device(4, guilty=5), range(8), retry=True)
    assert set(split.failures) == {5}
    assert sorted(position for part in split.parts for position in part.positions) == [0, 1, 2, 3, 4, 6, 7]


def test_without_retry_nothing_is_called_again() -> None:
    device = Device(4)
    split = predict_split(device, range(8), retry=False)
    assert (len(split.failures), device.failed, device.fitted) == (8, 1, [])


def test_what_the_failed_call_holds_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        alive = 0

        def __init__(self) -> None:
            Tensor.alive += 1

        def __del__(self) -> None:
            Tensor.alive -= 1

    def deep_in_a_library() -> None:
        tensors = [Tensor(), Tensor()]
        raise RuntimeError(len(tensors))

    def predict() -> None:
        try:
            deep_in_a_library()
        except RuntimeError as error:
            raise jitney.OutOfMemory("the card is full") from error

    emptied: list[bool] = []
    cuda = types.SimpleNamespace(is_initialized=lambda: True, empty_cache=lambda: emptied.append(True))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))  # pyright: ignore[reportArgumentType]
    with pytest.raises(jitney.OutOfMemory) as caught:
        predict()
    assert Tensor.alive == 2
    let_go(caught.value)
    assert (Tensor.alive, emptied) == (0, [True])
