"""A model that says when it is closed, and one whose `close` never returns."""

import sys
import threading

import jitney


@jitney.deployment
class Closing:
    """Texts, unchanged."""

    def predict(self, texts: list[str]) -> list[str]:
        return texts

    def close(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        print(f"closing was closed (main thread: {is_main})", file=sys.stderr)


@jitney.deployment
class Stuck:
    """Texts, unchanged."""

    def predict(self, texts: list[str]) -> list[str]:
        return texts

    def close(self) -> None:
        print("stuck begins to close", file=sys.stderr)
        threading.Event().wait()
