"""A model that takes a + b·n seconds and does not use the CPU; answers are a function of the item."""

import os
import time

import jitney
from witness import record, wait_at_gate


@jitney.deployment(max_batch_size=64)
class Sleepy:
    def __init__(self) -> None:
        record("load", [])
        self.base_s = float(os.environ.get("JITNEY_TEST_BASE_S", "0.005"))
        self.item_s = float(os.environ.get("JITNEY_TEST_ITEM_S", "0.0001"))

    def predict(self, texts: list[str]) -> list[str]:
        record("predict", texts)
        wait_at_gate()
        time.sleep(self.base_s + self.item_s * len(texts))
        return [text[::-1] for text in texts]
