"""Models that are faster than their clients: each step says a number and as many letters as the client asks for."""

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import jitney
import msgspec


class Wanted(msgspec.Struct):
    """A number of parts, and the letters of each."""

    parts: int
    letters: int = 1000


class Part(msgspec.Struct):
    """One part."""

    number: int
    letters: str


@dataclass
class Flow:
    """An item between two steps."""

    wanted: Wanted
    at: int = 0


@jitney.deployment(max_batch_size=16)
class Steps:
    """Works in steps."""

    def admit(self, items: list[Wanted]) -> list[Flow]:
        return [Flow(item) for item in items]

    def step(self, flows: list[Flow]) -> list[jitney.Step[Part]]:
        return [self.say(flow) for flow in flows]

    @staticmethod
    def say(flow: Flow) -> jitney.Step[Part]:
        flow.at += 1
        return Part(flow.at - 1, "x" * flow.wanted.letters) if flow.at <= flow.wanted.parts else jitney.End()


@jitney.deployment(batched=False)
class One:
    """Yields for one item at a time."""

    def predict(self, wanted: Wanted) -> Iterator[jitney.Step[Part]]:
        for number in range(wanted.parts):
            yield Part(number, "x" * wanted.letters)


@jitney.deployment(max_batch_size=8)
class Together:
    """Yields for the items of a batch."""

    def predict(self, items: list[Wanted]) -> Iterator[list[jitney.Step[Part]]]:
        for number in range(max(item.parts for item in items)):
            yield [Part(number, "x" * item.letters) if number < item.parts else jitney.End() for item in items]


@jitney.deployment(batched=False, max_batch_size=8)
class Aside:
    """Yields for items side by side."""

    async def predict(self, wanted: Wanted) -> AsyncIterator[jitney.Step[Part]]:
        for number in range(wanted.parts):
            yield Part(number, "x" * wanted.letters)


@jitney.deployment(max_batch_size=8)
class Tight:
    """Works in steps, in a memory that three items fit into."""

    def __init__(self) -> None:
        self.held = 0

    def admit(self, items: list[Wanted]) -> list[Flow]:
        if self.held + len(items) > 3:
            raise MemoryError
        self.held += len(items)
        return [Flow(item) for item in items]

    def step(self, flows: list[Flow]) -> list[jitney.Step[Part]]:
        time.sleep(0.01)
        return [Steps.say(flow) for flow in flows]

    def release(self, flows: list[Flow]) -> None:
        self.held -= len(flows)
