"""What an operator sees while a client leaves: counts of the server, and how far the model `echo` wrote."""

import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

PATIENCE_S = 60.0
Value = TypeVar("Value")


def until(condition: Callable[[], Value], what: str) -> Value:
    end = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {PATIENCE_S:.0f} s without success: {what}"
        time.sleep(0.01)
    return value


class OperatorView:
    """Reads `/metrics`, and opens the gates that answers of `echo` wait for after their first word."""

    def __init__(self, base_url: str, folder: str) -> None:
        self._metrics = f"{base_url.removesuffix('/v1')}/metrics"
        self._folder = Path(folder)
        self._gates = 0

    def new_gate(self) -> str:
        self._gates += 1
        return str(self._folder / f"gate-{self._gates}")

    def wait_for_end(self, gate: str, cancelled: int) -> int:
        """Wait until the server has cancelled so many requests and runs none; return how many words the model wrote."""
        until(
            lambda: self._count("jitney_requests_total", 'outcome="cancelled"') == cancelled, f"{cancelled} cancelled"
        )
        until(lambda: self._count("jitney_running_items") == 0, "no item runs")
        Path(gate).touch()
        return int(until(lambda: self._released(gate), "the model has released the answer"))

    def _count(self, name: str, label: str = "") -> float:
        with urllib.request.urlopen(self._metrics, timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        found = re.findall(rf'^{name}\{{(.*deployment="echo".*)\}} (\S+)$', text, re.MULTILINE)
        return sum(float(value) for labels, value in found if label in labels)

    def _released(self, gate: str) -> str:
        file = Path(f"{gate}.released")
        return file.read_text() if file.exists() else ""
