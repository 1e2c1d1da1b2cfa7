"""A model whose methods answer in parts of every kind. It writes down each step that it makes."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import jitney
import msgspec
import numpy as np


class Word(msgspec.Struct):
    """A part that is a struct."""

    text: str
    place: int


def step(what: str, gate: str = "") -> None:
    """Write a step down, and wait for a file."""
    if calls := os.environ.get("JITNEY_TEST_CALLS"):
        with Path(calls).open("a") as record:
            record.write(json.dumps({"items": [what]}) + "\n")
    while gate and not Path(gate).exists():
        threading.Event().wait(0.01)


@jitney.deployment(batched=False, stream_timeout_s=60)
class Showing:
    @jitney.method
    def words(self, text: str) -> Iterator[jitney.Step[Word]]:
        for place, word in enumerate(text.split()):
            yield Word(word, place)

    @jitney.method
    def arrays(self, count: int) -> Iterator[jitney.Step[np.ndarray]]:
        for number in range(count):
            yield np.full((2, 3), number, np.float32)

    @jitney.method
    def images(self, image: jitney.Image) -> Iterator[jitney.Step[jitney.Image, jitney.Image]]:
        pixels = image.to_numpy()
        yield jitney.Image(pixels[:1])
        yield jitney.End(answer=jitney.Image(pixels))

    @jitney.method
    def flood(self, count: int) -> Iterator[jitney.Step[bytes]]:
        for number in range(count):
            step(f"{number}")
            yield number.to_bytes(8, "little") + bytes((1 << 20) - 8)

    @jitney.method
    def ticks(self, gate: str) -> Iterator[jitney.Step[str]]:
        """The first part comes at once, each further one when the file is there."""
        yield "0"
        for number in range(1, 1_000_000):
            step(f"{number}", gate)
            yield f"{number}"


@jitney.deployment(batched=False, max_batch_size=4)
class Speaking:
    """An asynchronous generator: the first part comes at once, each further one when the file is there."""

    async def predict(self, gate: str) -> AsyncIterator[jitney.Step[str]]:
        try:
            for number in range(3):
                yield f"{number}"
                while not Path(gate).exists():
                    await asyncio.sleep(0.01)
        finally:
            step("closed")
