"""A language model in numpy that works in steps: it goes on with a text, letter by letter.

    jitney serve examples/letters.py
    curl -sN 127.0.0.1:8000/letters -H 'accept: text/event-stream' -H 'content-type: application/json' \\
         -d '{"prompt": "a bus ", "seed": 7}'

It counts which letter follows which two in the text of this file, and needs no weights. New prompts join the texts
that are being written at their next letter. A step is one call of numpy for all of them. The seed of a prompt makes
its text the same alone and next to others.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import jitney
import msgspec
import numpy as np

TEXT = (
    "a jitney is a small bus that leaves when it is full or when it is time. a batch of texts does the same. a "
    "bus that is not full waits for a while, and the people in it look at the time. a bus that leaves at once is "
    "fast, but it is not full. the next bus comes when the first is back. a text that is done leaves the bus, and "
    "a new one takes its place at the next stop. no one waits for the last text, and no place is free for long. "
)
LETTERS = 128
"""ASCII."""


class Prompt(msgspec.Struct):
    """A text to go on with."""

    prompt: str
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 200
    temperature: Annotated[float, msgspec.Meta(gt=0, le=10)] = 1.0
    seed: int = 0


@dataclass(slots=True)
class Writing:
    """What is kept of a text between two letters."""

    last: tuple[int, int]
    left: int
    temperature: float
    random: np.random.Generator
    read: int
    written: int = 0


@jitney.deployment(
    max_batch_size=64,
    examples=[Prompt("a bus ", max_tokens=20), Prompt("the text ", max_tokens=30, temperature=0.5, seed=7)],
)
class Letters:
    """Goes on with a text until the end of a sentence."""

    def __init__(self) -> None:
        codes = np.frombuffer(TEXT.encode(), np.uint8)
        counts = np.full((LETTERS, LETTERS, LETTERS), 1e-9, np.float32)
        np.add.at(counts, (codes[:-2], codes[1:-1], codes[2:]), np.float32(1))
        # After two letters that the text does not have together, the last one alone says what follows.
        counts += 1e-3 * counts.sum(0, keepdims=True)
        self.scores = np.log(counts)

    def admit(self, prompts: list[Prompt]) -> list[Writing | jitney.InvalidInput]:
        return [self.begin(prompt) for prompt in prompts]

    def begin(self, prompt: Prompt) -> Writing | jitney.InvalidInput:
        text = prompt.prompt.lower()
        if not text or not text.isascii():
            return jitney.InvalidInput("a prompt is one or more letters of ASCII", field="$.prompt")
        before, last = f" {text}"[-2:].encode()
        random = np.random.default_rng(abs(prompt.seed))
        return Writing((before, last), prompt.max_tokens, prompt.temperature, random, len(text))

    def step(self, writings: list[Writing]) -> list[jitney.Step[str]]:
        before, last = np.array([writing.last for writing in writings]).T
        temperature = np.array([writing.temperature for writing in writings], np.float32)
        chance = np.stack([writing.random.gumbel(size=LETTERS) for writing in writings])
        letters: np.ndarray[Any, np.dtype[Any]] = (self.scores[before, last] / temperature[:, None] + chance).argmax(1)
        return [self.write(writing, int(letter)) for writing, letter in zip(writings, letters, strict=True)]

    def write(self, writing: Writing, letter: int) -> jitney.Step[str]:
        writing.last = writing.last[1], letter
        writing.left, writing.written = writing.left - 1, writing.written + 1
        is_over = letter == ord(".")
        if not is_over and writing.left:
            return chr(letter)
        usage = jitney.Usage(writing.read, writing.written)
        return jitney.End(chr(letter), reason="stop" if is_over else "length", usage=usage)
