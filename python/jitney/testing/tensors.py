"""Arrays of answers without frames."""

from collections.abc import Sequence
from typing import Any


class Tensor(bytes):
    """An array of an answer: its bytes, with dtype and shape."""

    dtype: str
    shape: tuple[int, ...]
    stacked: bool

    @classmethod
    def of(cls, dtype: str, shape: Sequence[int], data: Any) -> "Tensor":
        """Copy the elements."""
        tensor = cls(data.tobytes() if hasattr(data, "tobytes") else data)
        tensor.dtype, tensor.shape, tensor.stacked = dtype, tuple(shape), False
        return tensor
