"""The Rust side, loaded by a thread that lives as long as the process.

Its allocator takes the thread that loads it for the main one, for good. If that was a thread which ended (an event loop
in a thread of a test client), the next thread with the same number crashed in its first allocation.
"""

import threading
from functools import cache
from importlib import import_module
from typing import Any


@cache
def core() -> Any:
    """Return `jitney._core`."""
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
