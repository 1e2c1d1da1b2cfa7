"""Settings of all tests."""

import signal

from hypothesis import settings


def pytest_configure() -> None:
    """Handle SIGINT, which is ignored in tests that run in the background and in all programs that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A case may take long because the machine is busy: that says nothing about the code.
    settings.register_profile("jitney", deadline=None)
    settings.load_profile("jitney")
