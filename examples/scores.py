"""Several arrays in, several arrays out: how bright an image is inside and outside a mask, with numpy only.

jitney serve examples/scores.py
python -c "import json; print(json.dumps({'image': [[[9, 9, 9]] * 8] * 8, 'mask': [[True] * 8] * 8}))" > item.json
curl -s 127.0.0.1:8000/brightness -H 'content-type: application/json' -d @item.json
"""

from typing import Annotated, NamedTuple

import jitney
import numpy as np


class Scores(NamedTuple):
    """One row per image in each array."""

    inside: np.ndarray
    outside: np.ndarray


@jitney.deployment(
    examples=[
        {"image": np.full((8, 8, 3), 200, np.uint8), "mask": np.eye(8, dtype=bool)},
        {"image": np.zeros((8, 8, 3), np.uint8), "mask": np.ones((8, 8), bool)},
    ],
)
class Brightness:
    """Mean brightness per channel where the mask is set and where it is not; 0 where there is no such pixel."""

    def predict(
        self,
        image: Annotated[np.ndarray, jitney.Tensor("uint8", (8, 8, 3))],
        mask: Annotated[np.ndarray, jitney.Tensor("bool", (8, 8))],
    ) -> Scores:
        return Scores(inside=self.mean(image, mask), outside=self.mean(image, ~mask))

    def mean(self, image: np.ndarray, where: np.ndarray) -> np.ndarray:
        total = (image * where[..., None]).sum(axis=(1, 2), dtype=np.float32)
        return total / np.maximum(where.sum(axis=(1, 2)), 1)[:, None].astype(np.float32)
