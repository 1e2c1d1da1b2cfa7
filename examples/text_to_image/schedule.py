"""How much of a picture is noise at each time, and the step from one time to the next. Needs only numpy."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

SIZES = [(32, 32), (48, 32), (48, 48)]
"""Width and height of the pictures that the network was trained on."""
TIMES = 1000
"""A picture of time 0 has almost no noise, one of time 999 has almost nothing else."""
LAST = -1
NOISIER = 9


def signal(times: Array) -> Array:
    """Return how much of a picture of these times is not noise: float32 between 0 and 1."""
    kept = np.cos(times / TIMES * np.pi / 2) ** 2
    # Areas of one colour can be seen through much noise, so most times have much of it.
    return (kept / (kept + NOISIER * (1 - kept))).clip(1e-5, 0.9999).astype(np.float32)


def times_of(steps: int) -> list[int]:
    """Return the times of a picture that takes so many steps; the last is -1, for no noise at all."""
    return [*np.linspace(TIMES - 1, 0, steps + 1)[:-1].round().astype(int).tolist(), LAST]


def less_noise(pixels: Array, answer: Array, now: Array, then: Array) -> tuple[Array, Array]:
    """Return the pictures without noise, as the network sees them, and with the noise of the next time (DDIM)."""
    kept = signal(now)[:, None, None, None]
    next_kept = np.where(then == LAST, np.float32(1), signal(np.maximum(then, 0)))[:, None, None, None]
    clear = (np.sqrt(kept) * pixels - np.sqrt(1 - kept) * answer).clip(-1.05, 1.05)
    rest = (pixels - np.sqrt(kept) * clear) / np.sqrt(1 - kept)
    return clear, np.sqrt(next_kept) * clear + np.sqrt(1 - next_kept) * rest
