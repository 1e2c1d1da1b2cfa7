"""Runs the Rust server in this process."""

import contextlib
import os
import signal
from collections.abc import Callable, Sequence

from jitney.config.options import ServerOptions
from jitney.front.settings import API_KEYS, Settings


def serve(
    settings: Settings,
    *,
    path: Sequence[str] = (),
    renews: bool = False,
    reread: Callable[[], Settings] | None = None,
) -> int:
    """Hand this process to the Rust server; returns the exit code. `path`, `renews`: as in `Settings.to_json`.

    `reread` composes the settings again, at SIGHUP. Only the command line has it, to which the whole process belongs.
    """
    prepare(settings)
    from jitney import _core  # noqa: PLC0415 - only serving needs Rust

    document = settings.to_json(path, renews=renews, owns_process=reread is not None)
    return _core.serve(document, None if reread is None else lambda: _changes(settings.server, reread().server))


def _changes(old: ServerOptions, new: ServerOptions) -> tuple[str, list[str]]:
    """Return the new log level, and the other options that differ."""
    before, after = old.to_dict(), new.to_dict()
    return new.log_level, [name for name in after if after[name] != before[name] and name != "log_level"]


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
