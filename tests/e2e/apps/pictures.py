"""Structs with images and arrays as fields, in and out."""

from typing import Annotated

import jitney
import msgspec
import numpy as np
from witness import record, wait_at_gate

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


class Detail(msgspec.Struct):
    crop: jitney.Image
    scores: Annotated[np.ndarray, jitney.Tensor("float32", (None,))]


class Found(msgspec.Struct):
    label: str
    thumbnail: jitney.Image
    mask: Mask
    details: list[Detail] = []
    heat: np.ndarray | None = None


@jitney.deployment(max_batch_size=8)
def detect(photos: list[jitney.Image]) -> list[Found]:
    answers: list[Found] = []
    for photo in photos:
        pixels = photo.to_numpy()
        detail = Detail(jitney.Image(pixels[:1, :1]), np.array([0.5, 2], np.float32))
        answers.append(Found("red", jitney.Image(pixels), np.full((2, 2), 7, np.uint8), [detail], np.ones((1, 2))))
    return answers


@jitney.deployment(max_batch_size=8)
def caption(image: list[jitney.Image], prompt: list[str], mask: Mask) -> list[str]:
    """Several parameters of different types."""
    total = mask.sum(axis=(1, 2))
    return [
        f"{text}: {one.to_pil().width} wide, {count}" for one, text, count in zip(image, prompt, total, strict=True)
    ]


@jitney.deployment(max_batch_size=8)
def loudness(signals: list[Annotated[np.ndarray, jitney.Tensor("float32", (None,))]]) -> list[dict[str, float]]:
    """Arrays of unequal length in one batch."""
    record("predict", [len(signal) for signal in signals])
    wait_at_gate()
    return [{"mean": float(signal.mean()), "together": len(signals)} for signal in signals]


@jitney.deployment(max_batch_size=8)
def beep(lengths: list[int]) -> list[jitney.Response | jitney.InvalidInput]:
    """Audio."""
    return [jitney.Response(b"RIFF" * length, "audio/wav") for length in lengths]
