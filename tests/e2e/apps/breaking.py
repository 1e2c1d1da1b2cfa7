"""A model that one item breaks for good: from then on it can compute nothing in this process."""

import os
import time
from pathlib import Path

import jitney
from witness import record

CUDA = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"


class Breaking:
    def __init__(self) -> None:
        self.error: Exception | None = None

    def predict(self, texts: list[str]) -> list[str]:
        record("predict", texts)
        for text in texts:
            if text.startswith("corrupt"):
                self.error = RuntimeError("the model is in pieces")
            if text.startswith("cuda"):
                self.error = RuntimeError(CUDA)
            if text.startswith("licence"):
                self.error = jitney.WorkerBroken("the licence server does not answer")
        if Path(os.environ.get("JITNEY_TEST_DOWN", "/no/such/file")).exists():
            raise jitney.WorkerBroken("the licence server does not answer")
        if self.error is not None:
            raise self.error
        time.sleep(0.002)
        return [text[::-1] for text in texts]


@jitney.deployment(max_batch_size=64, examples=["example"])
class Example(Breaking):
    """With an input to test itself with."""

    def predict(self, texts: list[str]) -> list[str]:
        return super().predict(texts)


@jitney.deployment(max_batch_size=64)
class Bare(Breaking):
    """Without one."""

    def predict(self, texts: list[str]) -> list[str]:
        return super().predict(texts)
