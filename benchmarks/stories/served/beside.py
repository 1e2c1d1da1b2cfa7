"""The models of the I/O story in jitney's workers, each on the core that was left to it."""

from typing import Any

import jitney
import numpy as np
from numpy.typing import NDArray

from stories import work


class OnItsCore:
    model: str

    def __init__(self) -> None:
        work.keep_to_model_core()
        self.compute = work.MODELS[self.model]()


@jitney.deployment(name="sleeping")
class Sleeping(OnItsCore):
    model = "sleeping"

    def predict(self, texts: list[str]) -> list[str]:
        return self.compute(texts)


@jitney.deployment(name="computing")
class Computing(OnItsCore):
    model = "computing"

    def predict(self, texts: list[str]) -> list[str]:
        return self.compute(texts)


@jitney.deployment(name="minilm")
class Vectors(OnItsCore):
    model = "minilm"

    def predict(self, texts: list[str]) -> NDArray[np.float32]:
        vectors: list[Any] = self.compute(texts)
        return np.stack(vectors)
