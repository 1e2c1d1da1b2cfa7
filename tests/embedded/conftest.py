"""Every test here runs an engine, in this process or in a separate program. No process may be left behind."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from witnesses import APPS, Witness


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(150))
            if not sys.platform.startswith("linux"):
                item.add_marker(pytest.mark.skip(reason="looks into /proc"))


@pytest.fixture(autouse=True)
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Witness]:
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
