"""Two stages that compute nothing, and an ensemble of four models that sleep: what a call between models costs.

Each in two ways: an `async def predict` that calls the others, and a deployment that the front carries out.
"""

import asyncio
import time

import jitney

SLEEP_S = 0.02


@jitney.deployment(max_batch_size=64)
class Echo:
    """Gives each item back."""

    def predict(self, blobs: list[bytes]) -> list[bytes]:
        return blobs


@jitney.deployment(batched=False, max_batch_size=256)
class TwoStages:
    """An item passes through another model."""

    echo = jitney.uses(Echo)

    async def predict(self, blob: bytes) -> bytes:
        return await self.echo(blob)


@jitney.deployment(max_batch_size=64)
class Before:
    """The first stage of a chain: gives each item back."""

    def predict(self, blobs: list[bytes]) -> list[bytes]:
        return blobs


Chained = jitney.chain(Before, Echo)


class Sleeper:
    """Sleeps for each batch."""

    def predict(self, blobs: list[bytes]) -> list[bytes]:
        time.sleep(SLEEP_S)
        return blobs


first = jitney.configure(Sleeper, name="first")
second = jitney.configure(Sleeper, name="second")
third = jitney.configure(Sleeper, name="third")
fourth = jitney.configure(Sleeper, name="fourth")


@jitney.deployment(batched=False, max_batch_size=64)
class Ensemble:
    """Four models on one input, at the same time."""

    first = jitney.uses(first)
    second = jitney.uses(second)
    third = jitney.uses(third)
    fourth = jitney.uses(fourth)

    async def predict(self, blob: bytes) -> bytes:
        answers = await asyncio.gather(self.first(blob), self.second(blob), self.third(blob), self.fourth(blob))
        return answers[0]


Together = jitney.together(first=first, second=second, third=third, fourth=fourth)
