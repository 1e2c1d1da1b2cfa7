"""Pictures with their descriptions, drawn at the size that is asked for: what the model is trained on."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from vocabulary import COLOURS, SHAPES

FINER = 4
"""Each pixel is the mean of so many points across and down, for smooth edges."""
PLACES = {
    "on the left": (-1, 0),
    "on the right": (1, 0),
    "at the top": (0, -1),
    "at the bottom": (0, 1),
    "in the middle": (0, 0),
}
Grid = np.ndarray[Any, Any]


def _polygon(x: Grid, y: Grid, corners: int, inner: float) -> Grid:
    """A star with so many points; `inner` is the radius of the corners between them."""
    half = np.pi / corners
    angle = np.abs((np.arctan2(x, -y) + half) % (2 * half) - half)
    radius = np.hypot(x, y)
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    corner_x, corner_y = inner * np.cos(half), inner * np.sin(half)
    return (corner_x - 1) * y - corner_y * (x - 1) > 0


def _heart(x: Grid, y: Grid) -> Grid:
    x, y = x * 1.2, -y * 1.2 + 0.1
    return (x**2 + y**2 - 1) ** 3 - x**2 * y**3 < 0


INSIDE: dict[str, Callable[[Grid, Grid], Grid]] = {
    "circle": lambda x, y: np.hypot(x, y) < 0.95,
    "square": lambda x, y: np.maximum(np.abs(x), np.abs(y)) < 0.85,
    "triangle": lambda x, y: _polygon(x, y - 0.15, 3, 0.5),
    "star": lambda x, y: _polygon(x, y, 5, 0.42),
    "ring": lambda x, y: np.abs(np.hypot(x, y) - 0.72) < 0.25,
    "cross": lambda x, y: (np.minimum(np.abs(x), np.abs(y)) < 0.3) & (np.maximum(np.abs(x), np.abs(y)) < 0.95),
    "heart": _heart,
    "diamond": lambda x, y: np.abs(x) * 1.3 + np.abs(y) < 1,
    "moon": lambda x, y: (np.hypot(x, y) < 0.95) & (np.hypot(x - 0.45, y) > 0.75),
}
"""Whether a point is inside the shape; the shape is between -1 and 1."""


def draw(
    shape: str, colours: tuple[str, str], size: tuple[int, int], radius: float, centre: tuple[float, float]
) -> np.ndarray:
    """Draw a shape of one colour on another: float32 of shape (3, height, width), -1 to 1. Lengths are pixels."""
    width, height = size
    x = (np.arange(width * FINER) + 0.5) / FINER - centre[0]
    y = (np.arange(height * FINER) + 0.5) / FINER - centre[1]
    inside = INSIDE[shape](*np.broadcast_arrays(x[None] / radius, y[:, None] / radius))
    share = inside.reshape(height, FINER, width, FINER).mean((1, 3), dtype=np.float32)
    ink, paper = np.array([COLOURS[name] for name in colours], np.float32)[:, :, None, None] / 127.5 - 1
    return paper * (1 - share) + ink * share


def _radius(word: str, shorter: int, rng: np.random.Generator) -> float:
    low, high = {"small": (0.17, 0.21), "large": (0.40, 0.45), "": (0.26, 0.34)}[word]
    return shorter * rng.uniform(low, high)


def picture(size: tuple[int, int], rng: np.random.Generator) -> tuple[np.ndarray, str]:
    """Draw a random picture and describe it, more or less fully."""
    width, height = size
    shape = str(rng.choice(SHAPES))
    ink, paper = (str(name) for name in rng.choice(list(COLOURS), 2, replace=False))
    big = str(rng.choice(["small", "large", ""], p=[0.2, 0.2, 0.6]))
    place = str(rng.choice(list(PLACES))) if rng.random() < 0.4 else ""
    radius = _radius(big, min(size), rng)
    room = width / 2 - radius - 1, height / 2 - radius - 1
    if place:
        across, down = PLACES[place]
        spread = rng.uniform(0.7, 1.0)
        shift = across * spread, down * spread
    else:
        shift = tuple(rng.normal(0, 0.15, 2).clip(-0.4, 0.4))
    centre = width / 2 + room[0] * shift[0], height / 2 + room[1] * shift[1]
    article = str(rng.choice(["a", "the", ""], p=[0.8, 0.1, 0.1]))
    ground = [f"on a {paper} background", f"on {paper}"][int(rng.random() < 0.4)]
    if rng.random() < 0.08:
        ground = ""
    colour = ink if rng.random() > 0.05 else ""
    words = " ".join(filter(None, (article, big, colour, shape, ground, place)))
    return draw(shape, (ink, paper), size, radius, centre), words
