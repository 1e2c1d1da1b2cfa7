"""A model that dies, raises or hangs, as its items ask."""

import os
import signal
import threading

import jitney
from witness import record, wait_at_gate


@jitney.deployment(max_batch_size=64)
class Crashing:
    def predict(self, texts: list[str]) -> list[str]:
        record("predict", texts)
        wait_at_gate()
        for text in texts:
            if text.startswith("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
            if text.startswith("crash"):
                os.abort()
            if text.startswith("raise"):
                raise RuntimeError(f"the model cannot do {text}")
            if text.startswith("hang"):
                threading.Event().wait()
        return [text[::-1] for text in texts]


@jitney.deployment(max_batch_size=64, retry=False)
class Once(Crashing):
    """Like `Crashing`, but no item may run twice."""

    def predict(self, texts: list[str]) -> list[str]:
        return super().predict(texts)
