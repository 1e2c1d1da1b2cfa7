"""Whether a Ray cluster can be reached: Ray itself waits for minutes, and says nothing meanwhile."""

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

AUTO: Final = "auto"
CLIENT: Final = "ray://"
NO_CLUSTER: Final = "no Ray cluster runs on this machine: run `ray start`, or set ray_address to HOST:PORT of a cluster"
_TIMEOUT_S: Final = 3.0
_TRY_EVERY_S: Final = 1.0
_WATCH_EVERY_S: Final = 2.0
_MOST_FAILURES: Final = 3
"""Of so many tries in a row none reaches the cluster: it has ended, and is not just busy."""

Say = Callable[[str], None]
"""Reports why the cluster cannot be reached."""


def unreachable(address: str) -> str | None:
    """Return why nothing answers at HOST:PORT or ray://HOST:PORT; None if something does."""
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return f"cannot reach the Ray cluster at {address}: {why}"
    return None


def wait_until_reached(address: str, say: Say, pause: Callable[[float], None] = time.sleep) -> None:
    """Wait until something answers at the address. The obstacle is reported when it changes."""
    said = None
    while address != AUTO and (why := unreachable(address)) is not None:
        if why != said:
            said = why
            say(why)
        pause(_TRY_EVERY_S)


def watch(address: str, say: Say, pause: Callable[[float], None] = time.sleep) -> None:
    """Return when the cluster at HOST:PORT cannot be reached any more; this was reported."""
    failures = 0
    while failures < _MOST_FAILURES:
        pause(_WATCH_EVERY_S)
        why = unreachable(address)
        failures = 0 if why is None else failures + 1
        if why is not None and failures == _MOST_FAILURES:
            say(why)


def end_without(address: str, say: Say) -> None:
    """End this process when the cluster has ended: all calls of Ray would wait. The front starts the next one."""

    def run() -> None:
        watch(address, say)
        os._exit(1)

    threading.Thread(target=run, daemon=True).start()
