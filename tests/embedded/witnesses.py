"""What the workers of a test write down, the gate that holds them, and the programs that tests start."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

APPS = Path(__file__).parents[1] / "e2e/apps"


def app(name: str) -> str:
    """The path of a model of the end-to-end tests."""
    return str(APPS / f"{name}.py")


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition without holding up the loop."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"waited without success: {what}"
        await asyncio.sleep(0.005)


def wait(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition, in a test without a loop."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, f"waited without success: {what}"
        time.sleep(0.005)


class Witness:
    """The record, the gate, and the processes that belong to one test."""

    def __init__(self, tag: str, calls_file: Path, gate_file: Path) -> None:
        self.tag = tag
        self.calls_file = calls_file
        self.gate_file = gate_file

    def calls(self) -> list[list[str]]:
        """The items of each call of `predict`."""
        if not self.calls_file.exists():
            return []
        records = (json.loads(line) for line in self.calls_file.read_text().split("\n")[:-1])
        return [record["items"] for record in records if record.get("kind") != "load"]

    async def calls_at_rest(self) -> int:
        """Wait until the model makes no more calls; returns how many it made."""
        made, seen = 0, -1
        while made != seen:
            seen = made
            await asyncio.sleep(0.5)
            made = len(self.calls())
        return made

    def computed(self) -> list[str]:
        return [item for items in self.calls() for item in items]

    def shut_gate(self) -> None:
        self.gate_file.touch()

    def open_gate(self) -> None:
        self.gate_file.unlink(missing_ok=True)

    def workers(self) -> list[int]:
        """The workers of this test, found by their environment: orphans too."""
        found: list[int] = []
        mark = f"JITNEY_TEST_TAG={self.tag}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    is_ours = mark in (entry / "environ").read_bytes().split(b"\0")
                    if is_ours and b"jitney.worker" in (entry / "cmdline").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def assert_nobody_left(self) -> None:
        end = time.monotonic() + 20
        while left := self.workers():
            assert time.monotonic() < end, f"these workers have not ended: {left}"
            time.sleep(0.01)
