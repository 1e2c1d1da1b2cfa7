"""Models for many streams at once: one that says a part and waits, and one that works in short steps."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import jitney

PARTS = 20


@jitney.deployment(batched=False, max_batch_size=20_000, max_queued_items=20_000)
class Idle:
    """Says one part, and the rest when the file is there."""

    async def predict(self, gate: str) -> AsyncIterator[jitney.Step[str]]:
        yield "begun"
        while not Path(gate).exists():
            await asyncio.sleep(0.5)
        yield "ended"


@dataclass
class Count:
    """An item between two steps."""

    at: int = 0


@jitney.deployment(max_batch_size=8, max_queued_items=16)
class Busy:
    """Says 20 numbers, one a step."""

    def admit(self, items: list[str]) -> list[Count]:
        return [Count() for _ in items]

    def step(self, counts: list[Count]) -> list[jitney.Step[str]]:
        time.sleep(0.002)
        return [self.say(count) for count in counts]

    @staticmethod
    def say(count: Count) -> jitney.Step[str]:
        count.at += 1
        return str(count.at - 1) if count.at <= PARTS else jitney.End()
