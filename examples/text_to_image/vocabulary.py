"""The words that the model knows, and prompts as numbers."""

import re
from collections.abc import Sequence

import numpy as np

COLOURS = {
    "red": (230, 40, 40),
    "green": (40, 180, 60),
    "blue": (50, 90, 230),
    "yellow": (240, 210, 40),
    "purple": (150, 60, 200),
    "orange": (245, 140, 30),
    "white": (250, 250, 250),
    "black": (12, 12, 12),
    "cyan": (40, 200, 220),
    "pink": (245, 130, 180),
}
SHAPES = ["circle", "square", "triangle", "star", "ring", "cross", "heart", "diamond", "moon"]
OTHERS = ["a", "the", "small", "large", "on", "at", "in", "background", "left", "right", "top", "bottom", "middle"]
SAME = {"big": "large", "huge": "large", "tiny": "small", "little": "small", "an": "a", "center": "middle"}
WORDS = ["", *COLOURS, *SHAPES, *OTHERS]
"""A word's number is its place; 0 is an empty place."""
NUMBERS = {word: number for number, word in enumerate(WORDS)} | {
    word: WORDS.index(known) for word, known in SAME.items()
}
MOST_WORDS = 14


def numbers(prompts: Sequence[str]) -> np.ndarray:
    """Return prompts as numbers: int64 of shape (n, 14). Words that the model does not know are left out."""
    rows = np.zeros((len(prompts), MOST_WORDS), np.int64)
    for row, prompt in zip(rows, prompts, strict=True):
        known = [NUMBERS[word] for word in re.findall("[a-z]+", prompt.lower()) if word in NUMBERS][:MOST_WORDS]
        row[: len(known)] = known
    return rows
