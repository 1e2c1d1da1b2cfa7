"""The Rust side, loaded by a thread that lives as long as the process.

Its allocator takes the thread that loads it for the main one, for good. If that was a thread which ended (an event loop
in a thread of a test client), the next thread with the same number crashed in its first allocation.
"""

import threading
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitney._core import Engine, Mailbox, Remote

__all__ = ["engine", "mailbox", "remote"]


@cache
def _core() -> Any:
    if threading.current_thread() is not threading.main_thread():
        is_loaded = threading.Event()

        def load_and_stay() -> None:
            try:
                import_module("jitney._core")
            finally:
                is_loaded.set()
            threading.Event().wait()

        threading.Thread(target=load_and_stay, name="jitney-loaded", daemon=True).start()
        is_loaded.wait()
    return import_module("jitney._core")


def engine(settings: str, threads: int) -> "Engine":
    """Start an engine in this process."""
    return _core().Engine(settings, threads)


def remote(place: str, key: str | None) -> "Remote":
    """Dial a server."""
    return _core().Remote(place, key)


def mailbox(event_loop: object) -> "Mailbox":
    """Make the mailbox of an event loop."""
    return _core().Mailbox(event_loop)
