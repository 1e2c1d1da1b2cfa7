"""Settings of all tests."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent
TOGETHER = ("docs", "monitoring", "machines", "deploy")
"""Folders whose tests share files, a costly fixture, or the network of the machine."""


def pytest_configure() -> None:
    """Handle SIGINT, which is ignored in tests that run in the background and in all programs that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A case may take long because the machine is busy: that says nothing about the code.
    settings.register_profile("jitney", deadline=None)
    settings.load_profile("jitney")


# Before the hook of xdist, which reads the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the tests of a file to one process where several run tests: they share servers."""
    for item in items:
        place = item.path.relative_to(ROOT)
        together = place.parts[0] if place.parts[0] in TOGETHER else str(place)
        item.add_marker(pytest.mark.xdist_group(together))
