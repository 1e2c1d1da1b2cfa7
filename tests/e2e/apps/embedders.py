"""Deployments that say their task: texts or tokens in, vectors and counts of tokens out."""

import zlib
from typing import Literal

import jitney
import msgspec
import numpy as np
from witness import record, wait_at_gate

LENGTH = 8


def vector(text: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(text.encode())).standard_normal(LENGTH, np.float32)


@jitney.deployment(task="embedding", max_batch_size=64, examples=["two words"])
class Words:
    """Reads texts only; a word is a token."""

    def predict(self, texts: list[str]) -> jitney.Embeddings:
        record("predict", texts)
        wait_at_gate()
        if "bad" in texts:
            raise jitney.InvalidInput("bad words have no vector")
        return jitney.Embeddings(np.stack([vector(text) for text in texts]), [len(text.split()) for text in texts])


class Input(msgspec.Struct):
    input: str | list[int]
    dimensions: int | None = None


@jitney.deployment(task="embedding", group_by=("dimensions",), max_batch_size=64)
class Matryoshka:
    """Reads texts and tokens, and returns the requested number of dimensions."""

    def predict(self, inputs: list[Input]) -> jitney.Embeddings:
        length = inputs[0].dimensions or LENGTH
        words = [i.input.split() if isinstance(i.input, str) else list(map(str, i.input)) for i in inputs]
        vectors = np.stack([vector(" ".join(each)) for each in words])[:, :length]
        return jitney.Embeddings(vectors.astype(np.float64), [len(each) for each in words])


class Passage(msgspec.Struct):
    input: str
    input_type: Literal["query", "passage"] = "query"


@jitney.deployment(task="embedding", group_by=("input_type",), max_batch_size=64)
def passages(items: list[Passage]) -> jitney.Embeddings:
    """Embeds a passage differently from a query."""
    return jitney.Embeddings(np.stack([vector(f"{i.input_type}: {i.input}") for i in items]), [1 for _ in items])


@jitney.deployment
def plain(texts: list[str]) -> list[str]:
    """Has no task, so the API does not know it."""
    return texts
