"""Runs the Rust server in this process."""

import contextlib
import os
import signal
from collections.abc import Sequence

from jitney.front.settings import API_KEYS, Settings


def serve(settings: Settings, *, path: Sequence[str] = (), renews: bool = False) -> int:
    """Hand this process to the Rust server; returns the exit code. `path`, `renews`: as in `Settings.to_json`."""
    prepare(settings)
    from jitney import _core  # noqa: PLC0415 - only serving needs Rust

    return _core.serve(settings.to_json(path, renews=renews))


def prepare(settings: Settings) -> None:
    """Make this process one that a server can run in; before the Rust side is loaded."""
    for descriptor in range(3):  # closed ones would be taken by sockets, which would then be written to as stderr
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            continue
        os.open(os.devnull, os.O_RDWR)
    # Read when the Rust side is loaded. With huge pages an idle connection cost 28 KB instead of 16: a buffer of which
    # 300 bytes are used then takes all of its memory.
    os.environ.setdefault("MIMALLOC_ALLOW_THP", "0")
    # What is larger goes back to the kernel at once: of one answer of 400 MB as much would stay with the allocator.
    os.environ.setdefault("MIMALLOC_ARENA_MAX_OBJECT_SIZE", "32MiB")
    # Models have no business with the keys of clients.
    os.environ.pop(API_KEYS, None)
    # Rust takes the signals; the interpreter's own handler would still run after it and fail a clean drain.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
