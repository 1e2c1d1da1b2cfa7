"""The pages run against a server of the end-to-end harness, which is in the folder of those tests."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "e2e"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            # The first test waits for the server, with a model in it.
            item.add_marker(pytest.mark.timeout(150))
            if not sys.platform.startswith("linux"):
                item.add_marker(pytest.mark.skip(reason="the harness looks into /proc: Linux only"))
