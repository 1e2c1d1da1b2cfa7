"""Two replicas, of which the second takes ten times as long while a file exists."""

import os
import time
from pathlib import Path

import jitney
from witness import record

BASE_S = 0.02


@jitney.deployment(max_batch_size=8, replicas=2)
class Uneven:
    def __init__(self) -> None:
        self.slow = Path(os.environ["JITNEY_TEST_SLOW_FILE"])
        self.replica = jitney.context().replica

    def predict(self, texts: list[str]) -> list[str]:
        record("predict", texts)
        is_slow = self.replica == 1 and self.slow.exists()
        time.sleep(BASE_S * (10 if is_slow else 1))
        return [f"{self.replica}:{text}" for text in texts]
