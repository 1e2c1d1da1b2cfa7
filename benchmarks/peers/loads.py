"""What is sent in each load, and what must come back."""

import json
import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from peers.served import models

TEXT = "a body of fifty-seven characters, as every server here gets"
MEGABYTE = 1_000_000
SENTENCES = re.findall(
    r"\w+",
    "the bus leaves when it is full or when it is time and nobody at the stop needs to know which of the two it was "
    "this morning because the one thing that counts is that those who waited are on their way and that those who came "
    "alone did not wait for others who may never come",
)
# Lengths of the mixed texts, in words: mostly short, as questions are, and some three times as long.
LENGTHS = (2, 3, 4, 6, 8, 10, 12, 24)

Item = Any
"""A dict of strings, or bytes."""


@dataclass(frozen=True)
class Load:
    """A model and the items that are sent to it, in turn."""

    name: str
    items: Callable[[], list[Item]]
    distinct: Callable[[int], Item]
    """Item number n of those that are checked: no two are equal."""


def mixed(number: int) -> str:
    words = LENGTHS[number % len(LENGTHS)]
    start = number * 7 % len(SENTENCES)
    return " ".join((SENTENCES * 2)[start : start + words])


LOADS: dict[str, Load] = {
    load.name: load
    for load in (
        Load("noop", lambda: [{"text": TEXT}], lambda n: {"text": f"text {n}"}),
        Load(
            "sleepy",
            lambda: [{"text": TEXT}],
            lambda n: {"text": f"text {n}"},
        ),
        Load(
            "minilm",
            lambda: [{"text": mixed(n)} for n in range(64)],
            lambda n: {"text": mixed(n)},
        ),
        Load(
            "grouped",
            lambda: [{"text": TEXT, "group": group} for group in ("a", "b")],
            lambda n: {"text": f"text {n}", "group": "ab"[n % 2]},
        ),
        Load("bytes", lambda: [b"x" * MEGABYTE], lambda n: bytes([n]) * 1000 + os.urandom(1000)),
    )
}


def chat_lengths(count: int) -> list[int]:
    """How many parts answers have, as those of a chat: most are short, and a few are very long."""
    draw = random.Random(1)
    return [min(500, max(10, round(draw.lognormvariate(4.1, 0.7)))) for _ in range(count)]


STREAMS: dict[str, Load] = {
    load.name: load
    for load in (
        Load("stream-noop", lambda: [{"text": "abcd", "parts": 64}], lambda n: {"text": f"a{n:03}", "parts": 20 + n}),
        Load(
            "stream-sleepy",
            lambda: [{"text": "abcd", "parts": parts} for parts in chat_lengths(256)],
            lambda n: {"text": f"a{n:03}", "parts": 10 + n},
        ),
    )
}
"""Loads whose answers come in parts. They are measured when they are named."""
EVERY = LOADS | STREAMS


def joined(body: bytes) -> str:
    """The text of a stream: its events of strings, whatever else its server says of them."""
    data = [line.removeprefix("data:").strip() for line in body.decode().splitlines() if line.startswith("data:")]
    texts = [one for one in data if one and one[0] not in "[{"]
    return "".join(json.loads(one) if one.startswith('"') else one for one in texts)


@cache
def minilm() -> models.MiniLM:
    return models.MiniLM()


def is_right(load: str, item: Item, answer: Any) -> bool:
    """Whether the answer is what the model gives to this item alone."""
    if load in STREAMS:
        return answer == item["text"] * item["parts"]
    if load != "minilm":
        return answer == item
    vector = np.asarray(answer, np.float32)
    (alone,) = minilm().embed([item["text"]])
    return vector.shape == alone.shape and float(vector @ alone / np.linalg.norm(vector)) > 0.999
