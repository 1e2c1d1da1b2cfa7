"""A model whose answers say where it runs. An answer holds its item, so that each can be checked."""

import os
import threading
import time
from typing import Any

import jitney


@jitney.deployment(max_batch_size=4)
class Placed:
    def __init__(self, takes_s: float = 0.02) -> None:
        self.takes_s = takes_s

    def predict(self, items: list[str]) -> list[dict[str, Any]]:
        time.sleep(self.takes_s)
        place = {
            "node": os.environ.get("JITNEY_TEST_NODE"),
            "pid": os.getpid(),
            "devices": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "device": str(jitney.context().device),
            "cores": jitney.cpu_threads(),
            "omp": os.environ.get("OMP_NUM_THREADS"),
            "is_main": threading.current_thread() is threading.main_thread(),
        }
        return [{"item": item, **place} for item in items]
