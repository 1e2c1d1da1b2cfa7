"""Deployments that the front carries out: chains and ensembles of every kind of value."""

import os
import signal
import time
from dataclasses import dataclass

import jitney
import msgspec
import numpy as np
from numpy.typing import NDArray
from witness import record, wait_at_gate


@jitney.deployment(max_batch_size=16, examples=["example"])
class Clean:
    """The first stage: gives each text back without spaces around it."""

    def predict(self, texts: list[str]) -> list[str]:
        record("clean", texts)
        if "bad first" in texts:
            raise jitney.InvalidInput("not for the first")
        if any(text.startswith("kill first") for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        return [text.strip() for text in texts]


@jitney.deployment(max_batch_size=16)
class Mark:
    """The second stage: what its items ask of it happens here."""

    def predict(self, texts: list[str]) -> list[str]:
        record("mark", texts)
        wait_at_gate()
        for text in texts:
            if text.startswith("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
            if text.startswith("raise"):
                raise RuntimeError("the second is broken")
            if text.startswith("bad"):
                raise jitney.InvalidInput("not for the second")
            if text.startswith("busy"):
                raise jitney.Overloaded("the second is busy", retry_after_s=7)
            if text.startswith("sleep"):
                time.sleep(0.002)
        return [f"<{text}>" for text in texts]


class Found(msgspec.Struct):
    length: int
    first: str


@jitney.deployment(max_batch_size=16)
class Measure:
    def predict(self, texts: list[str]) -> list[Found]:
        return [Found(len(text), text[:1]) for text in texts]


@jitney.deployment(max_batch_size=16, group_by=("first",))
class Describe:
    def predict(self, found: list[Found]) -> list[str]:
        assert len({one.first for one in found}) == 1, "one group in a batch"
        return [f"{one.length} of {one.first}" for one in found]


@jitney.deployment(max_batch_size=16)
class Vector:
    def predict(self, texts: list[str]) -> NDArray[np.float32]:
        return np.asarray([[len(text), ord(text[0])] for text in texts], np.float32)


@jitney.deployment(max_batch_size=16)
class Double:
    def predict(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        record("double", [vectors.shape[0]])
        return vectors * 2


@dataclass
class Boxes:
    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]


@jitney.deployment(max_batch_size=16)
class Detect:
    def predict(self, texts: list[str]) -> Boxes:
        count = len(texts)
        return Boxes(np.ones((count, 2), np.float32), np.full((count,), 0.5, np.float32))


@jitney.deployment(max_batch_size=16)
class Weigh:
    def predict(self, scores: NDArray[np.float32], boxes: NDArray[np.float32]) -> NDArray[np.float32]:
        return (boxes.sum(axis=1) * scores)[:, None]


@jitney.deployment(max_batch_size=16)
class Join:
    def predict(self, long: NDArray[np.float32], short: NDArray[np.float32]) -> NDArray[np.float32]:
        return long + short


@jitney.deployment(max_batch_size=16, context_headers=["x-tenant"])
class Told:
    def predict(self, texts: list[str]) -> list[str]:
        requests = jitney.context().requests
        return [f"{text} {one.id} {one.trace}" for text, one in zip(texts, requests, strict=True)]


Search = jitney.chain(Clean, Mark)
described = jitney.chain(Measure, Describe, name="described", route="/v1/described")
Doubled = jitney.chain(Vector, Double)
Weighed = jitney.chain(Detect, Weigh)
Telling = jitney.chain(Clean, Told)
Both = jitney.together(marked=Mark, found=Measure)
Vectors = jitney.together(long=Doubled, short=Vector)
Everything = jitney.together(box=Detect, text=Search, vector=Vector)
Joined = jitney.chain(Vectors, Join)


@jitney.deployment(batched=False, max_batch_size=64)
class Above:
    """A model that uses what the front carries out."""

    search = jitney.uses(Search)

    async def predict(self, text: str) -> str:
        record("above", [text])
        return f"({await self.search(text)})"
