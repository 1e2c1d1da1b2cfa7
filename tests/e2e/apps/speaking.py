"""Models whose parts are text or bytes."""

import threading
from collections.abc import Iterator
from pathlib import Path

import jitney
import msgspec


class Say(msgspec.Struct):
    """A text, and a file that lets the second letter come when it is there. `!` is a letter that cannot be said."""

    text: str
    gate: str = ""


def letters(say: Say) -> Iterator[str]:
    for place, letter in enumerate(say.text):
        while say.gate and place and not Path(say.gate).exists():
            threading.Event().wait(0.01)
        if letter == "!":
            raise ValueError("no shouting")
        yield letter


@jitney.deployment(batched=False, examples=[Say("hi")])
def written(say: Say) -> Iterator[jitney.Step[str]]:
    """A letter is a part."""
    yield from letters(say)


@jitney.deployment(batched=False)
def raw(say: Say) -> Iterator[jitney.Step[bytes]]:
    """A letter is a part, as bytes."""
    for letter in letters(say):
        yield letter.encode()


@jitney.deployment(batched=False)
def wave(say: Say) -> Iterator[jitney.Step[jitney.Response]]:
    """A letter is a part, as audio."""
    for letter in letters(say):
        yield jitney.Response(letter.encode(), "audio/wav")


@jitney.deployment(batched=False)
def shown(say: Say) -> Iterator[jitney.Step[bytes, jitney.Image]]:
    """The parts are previews, and the answer is an image."""
    yield from (letter.encode() for letter in letters(say))
