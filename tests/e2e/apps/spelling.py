"""Models that answer in parts."""

import threading
from collections.abc import Iterator
from pathlib import Path

import jitney
import msgspec


@jitney.deployment(max_batch_size=8)
class Spell:
    """Spells texts, a letter a step. `!` is a letter that it cannot say."""

    def predict(self, texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        left = [list(text) for text in texts]
        while any(left):
            if any(letters and letters[0] == "!" for letters in left):
                raise ValueError("no shouting")
            yield [letters.pop(0) if letters else jitney.End() for letters in left]


class Count(msgspec.Struct):
    """A number of steps, and a file that lets the next step begin when it is there."""

    to: int
    gate: str = ""


@jitney.deployment(batched=False)
class Counting:
    """Counts, a number a step."""

    def predict(self, count: Count) -> Iterator[jitney.Step[dict[str, int], int]]:
        for number in range(count.to):
            while count.gate and number and not Path(count.gate).exists():
                threading.Event().wait(0.01)
            yield {"number": number}
        yield jitney.End(answer=count.to, reason="length", usage=jitney.Usage(1, count.to))
