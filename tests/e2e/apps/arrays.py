"""Arrays in, arrays out."""

from typing import Annotated, NamedTuple

import jitney
import numpy as np


class Scores(NamedTuple):
    total: np.ndarray
    masked: np.ndarray


@jitney.deployment(max_batch_size=64)
def double(values: np.ndarray) -> np.ndarray:
    """Float32 of any shape, times two."""
    return values * 2


@jitney.deployment(max_batch_size=64)
def score(
    image: Annotated[np.ndarray, jitney.Tensor("uint8", (4, 4))],
    mask: Annotated[np.ndarray, jitney.Tensor("bool", (4, 4))],
) -> Scores:
    """Two arrays in, two out."""
    return Scores(
        total=image.sum(axis=(1, 2), dtype=np.int64),
        masked=np.where(mask, image, 0).sum(axis=(1, 2), dtype=np.int64),
    )
