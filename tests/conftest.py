"""Settings of all tests."""

import signal

import pytest
from hypothesis import settings

TOGETHER = ("docs", "monitoring", "machines", "deploy")
"""Folders whose tests share files, a costly fixture, or the network of the machine."""


def pytest_configure() -> None:
    """Handle SIGINT, which is ignored in tests that run in the background and in all programs that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A case may take long because the machine is busy: that says nothing about the code.
    settings.register_profile("jitney", deadline=None)
    settings.load_profile("jitney")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Leave the tests of a file to one process where several run tests: they share servers."""
    # Only where several processes run tests.
    from xdist.scheduler import (  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]
        LoadScopeScheduling,
    )

    class ByPlace(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::", 1)[0]
            folder = path.split("/")[1]
            return folder if folder in TOGETHER else path

    return ByPlace(config, log)  # pyright: ignore[reportArgumentType] - a class of xdist that has no public name
