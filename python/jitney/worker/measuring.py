"""Sends what a model counts itself to the front, apart from the batches."""

import threading
from collections.abc import Callable
from contextlib import suppress

from jitney import measures

EVERY_S = 1.0


class Measuring:
    """A thread that sends once a second while something was counted; none if the model has no metrics."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._ends = threading.Event()

    def start(self) -> None:
        """Begin to send. Called when the model is loaded and warm: what it counted until now was for no request."""
        measures.take()
        if measures.is_used():
            threading.Thread(target=self._run, name="jitney-measures", daemon=True).start()

    def end(self) -> None:
        """Send what is left."""
        self._ends.set()
        self._flush()

    def _run(self) -> None:
        while not self._ends.wait(EVERY_S):
            self._flush()

    def _flush(self) -> None:
        changed = measures.take()
        if changed is not None:
            with suppress(OSError):  # the link is lost: the worker ends, or has another one soon
                self._send(changed)
