"""The pages use the parser of the other pages' tests and the server of the end-to-end harness."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "docs"), str(HERE.parent / "e2e"), str(HERE)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            # Some servers take half a minute to start on two busy cores.
            item.add_marker(pytest.mark.timeout(240))
            if not sys.platform.startswith("linux"):
                item.add_marker(pytest.mark.skip(reason="the harness looks into /proc: Linux only"))
