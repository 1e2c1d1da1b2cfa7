"""Models for the route for images: squares of one colour."""

from collections.abc import Iterator
from typing import Literal

import jitney
import msgspec
import numpy as np


class Prompt(msgspec.Struct):
    """What is to be painted."""

    prompt: str
    width: int = 8
    height: int = 8
    seed: int = 0
    output_format: Literal["png", "jpeg", "webp"] = "png"
    partial_images: int = 0


def picture(item: Prompt, shade: int) -> jitney.Image:
    return jitney.Image(np.full((item.height, item.width), shade, np.uint8), format=item.output_format.upper())


@jitney.deployment(task="image", batched=False)
def paint(item: Prompt) -> Iterator[jitney.Step[jitney.Image, jitney.Image]]:
    """Shows as many previews as are asked for, each lighter than the one before."""
    for preview in range(item.partial_images):
        yield picture(item, 50 * (preview + 1))
    if item.prompt == "hurt":
        raise ValueError("it hurts")
    yield jitney.End(answer=picture(item, 200 + item.seed), usage=jitney.Usage(len(item.prompt.split()), 5))


@jitney.deployment(task="image")
def dots(texts: list[str]) -> list[jitney.Image]:
    """Has one size and one format."""
    return [jitney.Image(np.full((2, 2), len(text), np.uint8)) for text in texts]
