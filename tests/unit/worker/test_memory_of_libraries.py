"""What real libraries raise when memory is asked for that no machine has."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from jitney.worker.memory import is_out_of_memory

PETABYTE = 1 << 50
SIDE = 1 << 24
"""A matrix of this side has a petabyte of float32."""


def field(number: int, content: bytes) -> bytes:
    """Write a length-delimited field of a protocol buffer."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def number(place: int, value: int) -> bytes:
    return varint(place << 3) + varint(value)


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def declared(name: bytes, element: int, axes: Iterator[bytes]) -> bytes:
    shape = b"".join(field(1, axis) for axis in axes)
    return field(1, name) + field(2, field(1, number(1, element) + field(2, shape)))


def expanding() -> bytes:
    """Return an ONNX model that makes a matrix of one number: y = Expand(x, shape)."""
    node = field(1, b"x") + field(1, b"shape") + field(2, b"y") + field(4, b"Expand")
    one, two, some = number(1, 1), number(1, 2), field(2, b"n")
    inputs = [declared(b"x", 1, iter([one, one])), declared(b"shape", 7, iter([two]))]
    graph = field(1, node) + field(2, b"g") + b"".join(field(11, value) for value in inputs)
    graph += field(12, declared(b"y", 1, iter([some, some])))
    return number(1, 8) + field(7, graph) + field(8, number(2, 13))


def test_onnxruntime() -> None:
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(expanding(), options, providers=["CPUExecutionProvider"])

    def run(side: int) -> Any:
        return session.run(None, {"x": np.ones((1, 1), np.float32), "shape": np.array([side, SIDE], np.int64)})

    with pytest.raises(Exception, match="allocate memory") as raised:
        run(SIDE)
    assert type(raised.value).__module__.startswith("onnxruntime")
    assert is_out_of_memory(raised.value)
    with pytest.raises(Exception, match="Invalid") as other:
        session.run(None, {"x": np.ones((1, 1), np.float32)[0], "shape": np.array([2, 2], np.int64)})
    assert not is_out_of_memory(other.value)


def test_numpy() -> None:
    with pytest.raises(MemoryError) as raised:
        np.ones((SIDE, SIDE), np.float32)
    assert is_out_of_memory(raised.value)


def test_torch() -> None:
    """On a processor torch has no type for it: a RuntimeError says what could not be had."""
    torch: Any = pytest.importorskip("torch")
    with pytest.raises(RuntimeError) as raised:
        torch.empty(PETABYTE, dtype=torch.uint8)
    assert is_out_of_memory(raised.value)
    assert is_out_of_memory(torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))


def test_none_of_them_is_imported_to_ask() -> None:
    before = set(sys.modules)
    assert not is_out_of_memory(RuntimeError("shapes differ"))
    assert not {"torch", "onnxruntime"} & (set(sys.modules) - before)
