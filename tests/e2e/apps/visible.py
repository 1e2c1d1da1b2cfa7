"""A model that records which devices its process sees when it loads."""

import os

import jitney
from witness import record


@jitney.deployment
class Visible:
    def __init__(self) -> None:
        seen = [os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")]
        record("load", [*seen, jitney.context().device])

    def predict(self, texts: list[str]) -> list[str]:
        return texts
