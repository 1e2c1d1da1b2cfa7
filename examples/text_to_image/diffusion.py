"""How a picture becomes clear, step by step: the network of `model.onnx`, on onnxruntime, and what is done between.

A picture begins as noise. In each step the network says what is noise and what is picture, and some of the noise is
taken away. One call of the network computes pictures that are at different steps of different numbers of steps: each
row has its own time. A row's result does not depend on the other rows.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jitney
import numpy as np
import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
from prompt import Prompt
from schedule import LAST, less_noise, times_of
from vocabulary import numbers

# Untyped libraries end here.
ort: Any = onnxruntime
MODEL = Path(__file__).with_name("model.onnx")
Array = np.ndarray[Any, np.dtype[Any]]


def noise(seed: int, width: int, height: int) -> Array:
    """Return the noise that a picture begins with."""
    return np.random.default_rng(seed).standard_normal((3, height, width)).astype(np.float32)


@dataclass(slots=True)
class Picture:
    """A picture that becomes clear."""

    pixels: Array
    words: Array
    """The numbers of the negative prompt and of the prompt: shape (2, 14)."""
    guidance: float
    times: list[int]
    at: int = 0
    clear: Array | None = None
    """What the network takes the picture for at this step."""

    @property
    def is_done(self) -> bool:
        """Whether no noise is left."""
        return self.times[self.at] == LAST


def begin(prompt: Prompt) -> Picture:
    """Return a picture of noise only."""
    seed = secrets.randbits(32) if prompt.seed is None else prompt.seed
    words = numbers([prompt.negative_prompt, prompt.prompt])
    return Picture(noise(seed, *prompt.size), words, prompt.guidance_scale, times_of(prompt.steps))


class Denoiser:
    """The network."""

    def __init__(self, path: Path = MODEL) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = jitney.cpu_threads()
        options.log_severity_level = 3
        self.session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def step(self, pictures: Sequence[Picture]) -> None:
        """Make each of these pictures of one size a step clearer, in one call of the network."""
        now = np.array([picture.times[picture.at] for picture in pictures])
        then = np.array([picture.times[picture.at + 1] for picture in pictures])
        pixels = np.stack([picture.pixels for picture in pictures])
        weight = np.array([picture.guidance for picture in pictures], np.float32)[:, None, None, None]
        # Two rows for each, with the negative prompt and with the prompt. Guidance is how far to go from one to the
        # other. With two rows or more the runtime computes a row in the same way, however many there are.
        words = np.stack([picture.words for picture in pictures], 1).reshape(2 * len(pictures), -1)
        feeds = {"pixels": np.concatenate([pixels, pixels]), "times": np.concatenate([now, now]), "words": words}
        without, within = np.split(self.session.run(["answer"], feeds)[0], 2)
        clear, pixels = less_noise(pixels, without + weight * (within - without), now, then)
        for picture, row, guess in zip(pictures, pixels, clear, strict=True):
            picture.pixels, picture.clear, picture.at = row, guess, picture.at + 1


def image(pixels: Array) -> jitney.Image:
    """Return pixels between -1 and 1 as an image."""
    colours = ((pixels.transpose(1, 2, 0) + 1) * 127.5).round().clip(0, 255)
    return jitney.Image(np.ascontiguousarray(colours.astype(np.uint8)))
