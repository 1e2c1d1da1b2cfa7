"""Tests of deploy/: they use programs of Prometheus, and the server of the end-to-end harness."""

import os
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parents[1] / "scripts")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(150))


def tool(name: str) -> str:
    """Return the path of a program that `make monitoring-tools` installs."""
    found = shutil.which(name)
    if found is None and os.environ.get("JITNEY_REQUIRE_TOOLS"):
        pytest.fail(f"{name} is not installed, and JITNEY_REQUIRE_TOOLS is set: run `make monitoring-tools`")
    if found is None:
        pytest.skip(f"{name} is not installed: make monitoring-tools")
    return found


@pytest.fixture(scope="session")
def promtool() -> str:
    return tool("promtool")


@pytest.fixture(scope="session")
def prometheus() -> str:
    return tool("prometheus")
