"""The model of the stream loads: in a step it makes one part for each of its items. No server is imported here."""

import time
from dataclasses import dataclass
from typing import Any

import models

STEP_S, ITEM_S = 0.008, 0.0002
MAX_ITEMS = 64
SLEEPS = models.MODEL == "stream-sleepy"
"""Whether a step takes time that an event loop must not be held up for."""


@dataclass(slots=True)
class Writing:
    """An answer between two steps."""

    text: str
    left: int


def begin(item: dict[str, Any]) -> Writing:
    return Writing(item["text"], item["parts"])


def step(writings: list[Writing]) -> list[str]:
    """An accelerator: it uses no CPU and computes one step at a time, for all threads."""
    if SLEEPS:
        with models.accelerator:
            time.sleep(STEP_S + ITEM_S * len(writings))
    for writing in writings:
        writing.left -= 1
    return [writing.text for writing in writings]


def event(part: str) -> str:
    return f'data: "{part}"\n\n'


END = "data: [DONE]\n\n"
EVENTS = "text/event-stream"
