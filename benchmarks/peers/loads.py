"""What is sent in each load, and what must come back."""

import os
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


@cache
def minilm() -> models.MiniLM:
    return models.MiniLM()


def is_right(load: str, item: Item, answer: Any) -> bool:
    """Whether the answer is what the model gives to this item alone."""
    if load != "minilm":
        return answer == item
    vector = np.asarray(answer, np.float32)
    (alone,) = minilm().embed([item["text"]])
    return vector.shape == alone.shape and float(vector @ alone / np.linalg.norm(vector)) > 0.999
