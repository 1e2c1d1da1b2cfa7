"""What all tests share."""

import signal


def pytest_configure() -> None:
    """Whoever starts the tests in the background ignores SIGINT for them, and so for every program that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
