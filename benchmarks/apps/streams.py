"""Models that answer in parts: no work, a time stamp in each part, and steps of a + b·n seconds."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import jitney
import msgspec

STEP_S, ITEM_S = 0.008, 0.0002
STAMP_S = 0.002
"""Between two stamps: longer than one takes to the client."""


class Prompt(msgspec.Struct):
    """What is written, and how many parts of it."""

    text: str = "abcd"
    parts: int = 64


@dataclass(slots=True)
class Writing:
    """An answer between two steps."""

    text: str
    left: int

    def write(self) -> jitney.Step[str]:
        self.left -= 1
        return self.text if self.left else jitney.End(self.text)


class Writer:
    """A model that works in steps."""

    def admit(self, prompts: list[Prompt]) -> list[Writing]:
        return [Writing(prompt.text, prompt.parts) for prompt in prompts]

    def step(self, writings: list[Writing]) -> list[jitney.Step[str]]:
        return [writing.write() for writing in writings]


@jitney.deployment(max_batch_size=64)
class Parts(Writer):
    """Computes nothing: what is left is the server."""


@jitney.deployment(task="chat", max_batch_size=64)
class Chunks(Writer):
    """The same as a chat: 64 parts, each of which is a chunk in OpenAI's API."""

    def admit(self, chats: list[jitney.Chat]) -> list[Writing]:
        return [Writing("abcd", 64) for _ in chats]


@jitney.deployment(max_batch_size=64)
class Stamps(Writer):
    """Each part is the instant at which `step` returned, in nanoseconds of the monotonic clock."""

    def step(self, writings: list[Writing]) -> list[jitney.Step[str]]:
        time.sleep(STAMP_S)
        for writing in writings:
            writing.left -= 1
        now = str(time.monotonic_ns())
        return [now if writing.left else jitney.End(now) for writing in writings]


@jitney.deployment(max_batch_size=64)
class Steps(Writer):
    """Items join and leave between two steps."""

    def step(self, writings: list[Writing]) -> list[jitney.Step[str]]:
        time.sleep(STEP_S + ITEM_S * len(writings))
        return [writing.write() for writing in writings]


@jitney.deployment(max_batch_size=64)
class Batches:
    """The same steps, but a batch begins together and runs until its last item has ended."""

    def predict(self, prompts: list[Prompt]) -> Iterator[list[jitney.Step[str]]]:
        writings = [Writing(prompt.text, prompt.parts) for prompt in prompts]
        while left := sum(writing.left > 0 for writing in writings):
            time.sleep(STEP_S + ITEM_S * left)
            yield [writing.write() if writing.left else None for writing in writings]
