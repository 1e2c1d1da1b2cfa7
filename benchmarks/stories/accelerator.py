"""Accelerators that are not here: a model of their cost sleeps."""

import threading
import time


class Accelerator:
    """Computes one batch after the other, in the order of the calls, each `base_s + item_s · n` seconds.

    Callers in several threads wait for each other, as in the queue of a real device. The end of a batch is
    an instant and not a length, so that a sleep that lasts too long does not delay the batches behind it.
    """

    def __init__(self, base_s: float, item_s: float) -> None:
        self.base_s, self.item_s = base_s, item_s
        self._lock = threading.Lock()
        self._free_at = 0.0

    def batch_s(self, items: int) -> float:
        return self.base_s + self.item_s * items

    def run(self, items: int, factor: float = 1.0) -> None:
        """Compute a batch whose items cost `factor` times as much as usual."""
        with self._lock:
            self._free_at = end = max(time.monotonic(), self._free_at) + factor * self.batch_s(items)
        time.sleep(max(0.0, end - time.monotonic()))
