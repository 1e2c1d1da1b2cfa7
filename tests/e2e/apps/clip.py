"""A model with two methods and no `predict`, and one that has `predict` and another method."""

import threading

import jitney
import msgspec
import numpy as np


class Square(msgspec.Struct):
    """A picture, as far as this test needs one."""

    size: int = 2
    color: str = "red"


class Answer(msgspec.Struct):
    """What a method saw."""

    size: int
    loads: int
    batch: int
    sizes: int
    """How many different sizes were in its batch."""


@jitney.deployment(max_batch_size=8)
class Clip:
    """Vectors of texts and of squares."""

    loads = 0

    def __init__(self) -> None:
        Clip.loads += 1
        self.busy = threading.Lock()

    @jitney.method(task="embedding", examples=["a text"])
    def embed_text(self, texts: list[str]) -> jitney.Embeddings:
        """Return the vector of each text."""
        self._alone()
        return jitney.Embeddings(np.array([[len(text), 1.0] for text in texts], "float32"), [1] * len(texts))

    @jitney.method(group_by=("size",), examples=[Square()])
    def embed_square(self, squares: list[Square]) -> list[Answer]:
        """Return what it saw."""
        self._alone()
        sizes = len({square.size for square in squares})
        return [Answer(square.size, Clip.loads, len(squares), sizes) for square in squares]

    def _alone(self) -> None:
        if not self.busy.acquire(blocking=False):
            raise RuntimeError("two batches at the same time")
        self.busy.release()


@jitney.deployment(route="/v1/words")
class Words:
    """Turns words around."""

    def predict(self, words: list[str]) -> list[str]:
        return [word[::-1] for word in words]

    @jitney.method
    def letters(self, words: list[str]) -> list[int]:
        """Return how many letters each word has."""
        if "" in words:
            raise ValueError("an empty word")
        return [len(word) for word in words]
