"""A model that works in steps. It waits for files before it continues, and records the items that it holds."""

import threading
from dataclasses import dataclass
from pathlib import Path

import jitney
import msgspec


class Text(msgspec.Struct):
    """A text that is said a letter a step. `!` is a letter that cannot be said."""

    text: str
    gate: str = ""
    """From its second letter on, steps wait for this file."""


@dataclass
class Writing:
    """An item between two steps."""

    item: Text
    at: int = 0


@jitney.deployment(max_batch_size=4)
class Write:
    """Says texts, a letter a step, each of any age in one call."""

    def __init__(self) -> None:
        self.active = 0

    def admit(self, items: list[Text]) -> list[Writing | Exception]:
        self.active += len(items)
        return [Writing(item) for item in items]

    def step(self, writings: list[Writing]) -> list[jitney.Step[str]]:
        for writing in writings:
            while writing.item.gate and writing.at == 1 and not Path(writing.item.gate).exists():
                threading.Event().wait(0.01)
        if any(writing.item.text[writing.at] == "!" for writing in writings):
            raise ValueError("no shouting")
        return [self.say(writing) for writing in writings]

    def say(self, writing: Writing) -> jitney.Step[str]:
        letter = writing.item.text[writing.at]
        writing.at += 1
        if writing.at < len(writing.item.text):
            return letter
        return jitney.End(letter, reason="length", usage=jitney.Usage(1, writing.at))

    def release(self, writings: list[Writing]) -> None:
        self.active -= len(writings)
        print(f"holds {self.active}")
