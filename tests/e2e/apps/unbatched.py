"""A model that takes one item at a time."""

import jitney
from witness import record


@jitney.deployment(batched=False)
def single(text: str) -> str:
    """One text, reversed."""
    record("predict", [text])
    return text[::-1]
