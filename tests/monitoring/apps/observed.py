"""Two models that fill every panel: one with whole answers, and one that writes in steps."""

import os
import time
from dataclasses import dataclass

import jitney

BATCH_S = 0.03
ITEM_S = 0.002
STEP_S = 0.005


@jitney.deployment(
    max_batch_size=8, max_queued_items=16, replicas=2, cost=jitney.length(), examples=["a", "a longer text"]
)
class Plain:
    """Takes 30 ms and 2 ms for each text. A text that begins with `raise` fails."""

    def __init__(self) -> None:
        # The server writes it with the name of the replica: who wants to kill a worker finds it there.
        print(f"pid {os.getpid()}")

    def predict(self, texts: list[str]) -> list[str | Exception]:
        time.sleep(BATCH_S + ITEM_S * len(texts))
        return [ValueError("as the text asks") if text.startswith("raise") else text[::-1] for text in texts]


@dataclass
class Writing:
    """A text between two steps."""

    text: str
    at: int = 0


@jitney.deployment(max_batch_size=8, examples=["hello"])
class Writer:
    """Says a text, a letter a step."""

    def admit(self, texts: list[str]) -> list[Writing]:
        return [Writing(text) for text in texts]

    def step(self, writings: list[Writing]) -> list[jitney.Step[str]]:
        time.sleep(STEP_S)
        return [self.say(writing) for writing in writings]

    @staticmethod
    def say(writing: Writing) -> jitney.Step[str]:
        writing.at += 1
        letter = writing.text[writing.at - 1]
        if writing.at < len(writing.text):
            return letter
        return jitney.End(letter, reason="length", usage=jitney.Usage(1, writing.at))
