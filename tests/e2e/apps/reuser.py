"""Models that compute into the same memory again and again, and that change what they are given."""

import hashlib
from typing import Any

import jitney
import numpy as np

_WORK = bytes(4 << 20)


def work() -> None:
    """Take some milliseconds without the interpreter lock, as a model on a device does."""
    hashlib.sha256(_WORK).digest()


@jitney.deployment(max_batch_size=8)
class Rows:
    """One array for all batches; raises if a number is negative."""

    def __init__(self) -> None:
        self.buffer = np.zeros((8, 4), np.float32)

    def predict(self, numbers: list[float]) -> np.ndarray:
        self.buffer[:] = -1
        if min(numbers) < 0:
            raise ValueError("negative")
        self.buffer[: len(numbers)] = np.array(numbers, np.float32)[:, None]
        return self.buffer[: len(numbers)]


@jitney.deployment(max_batch_size=8)
class Dicts:
    """The same memory inside dicts, from a `predict` that takes long enough to be overlapped."""

    def __init__(self) -> None:
        self.buffer = np.zeros((8, 2000), np.float32)

    def predict(self, numbers: list[float]) -> list[dict[str, Any]]:
        self.buffer[: len(numbers)] = np.array(numbers, np.float32)[:, None]
        work()
        return [{"values": row} for row in self.buffer[: len(numbers)]]


@jitney.deployment(max_batch_size=8)
def doubled(items: list[dict[str, float]]) -> list[float]:
    """Double each number in place; raises if one is negative."""
    for item in items:
        item["n"] *= 2
    if any(item["n"] < 0 for item in items):
        raise ValueError("negative")
    return [item.pop("n") for item in items]
