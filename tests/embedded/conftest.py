"""Every test here runs an engine, in this process or in a program of its own; nobody may be left behind."""

import json
import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

APPS = Path(__file__).parents[1] / "e2e/apps"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(150))
            if not sys.platform.startswith("linux"):
                item.add_marker(pytest.mark.skip(reason="looks into /proc"))


@pytest.fixture(autouse=True)
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Witness"]:
    """What the workers of this test write down, and the gate that holds them."""
    tag = uuid.uuid4().hex
    seen = Witness(tag, tmp_path / "calls", tmp_path / "gate")
    monkeypatch.setenv("JITNEY_TEST_TAG", tag)
    monkeypatch.setenv("JITNEY_TEST_CALLS", str(seen.calls_file))
    monkeypatch.setenv("JITNEY_TEST_GATE", str(seen.gate_file))
    monkeypatch.setattr(sys, "path", [str(APPS), *sys.path])
    yield seen
    seen.open_gate()
    seen.assert_nobody_left()


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
        return [json.loads(line)["items"] for line in self.calls_file.read_text().split("\n")[:-1]]

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
