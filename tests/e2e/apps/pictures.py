"""Structs with images and arrays as fields, in and out."""

from typing import Annotated

import jitney
import msgspec
import numpy as np

Mask = Annotated[np.ndarray, jitney.Tensor("uint8", (2, 2))]


class Picture(msgspec.Struct):
    prompt: str
    photo: jitney.Image
    mask: Mask
    more: list[jitney.Image] = []
    points: list[Annotated[np.ndarray, jitney.Tensor("float32", (None,))]] = []


class Facts(msgspec.Struct):
    text: str
    mask: Mask


@jitney.deployment(max_batch_size=8)
def pictures(items: list[Picture]) -> list[dict[str, object]]:
    for item in items:
        item.mask += 1
    return [
        {
            "prompt": item.prompt,
            "size": item.photo.to_pil().size,
            "mask": item.mask.tolist(),
            "more": [image.to_pil().size for image in item.more],
            "points": [points.tolist() for points in item.points],
        }
        for item in items
    ]
