"""Watches Python files for `--reload`. watchfiles does the work: the system reports changes, nothing is polled."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from jitney.errors import ConfigError

INSTALL: Final = "pip install watchfiles"
TICK_MS: Final = 100
"""Longest time between two reports when nothing changes."""
GROUP_MS: Final = 400
"""Changes are collected for at most this long before they are reported."""
SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "target"})
"""Folders whose files are not edited. Folders whose name begins with a dot are skipped too."""


def check_installed() -> None:
    """Raise ConfigError if watchfiles is not installed."""
    if find_spec("watchfiles") is None:
        raise ConfigError(f"--reload needs watchfiles, which is not installed: {INSTALL}")


def python_changes(folders: Sequence[Path]) -> Iterator[bool]:
    """Report, at least ten times a second, whether Python files below these folders changed since the last report.

    Watching begins with the first report. ConfigError if the system cannot watch so many folders.
    """
    from watchfiles import watch  # noqa: PLC0415 - only `--reload` needs it

    # Without a filter: watchfiles would report nothing, not even the time-out, while only other files change.
    reports = watch(
        *folders,
        watch_filter=None,
        debounce=GROUP_MS,
        rust_timeout=TICK_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
    )
    try:
        for changes in reports:
            yield any(is_watched(Path(path), folders) for _, path in changes)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"--reload cannot watch {', '.join(map(str, folders))}: {error}; "
            "raise the system's limit (fs.inotify.max_user_watches), or set WATCHFILES_FORCE_POLLING=1"
        ) from None


def is_watched(path: Path, folders: Sequence[Path]) -> bool:
    """Whether this is a Python file that users edit; the path above the watched folder does not matter."""
    return path.suffix == ".py" and any(
        path.is_relative_to(folder) and not any(map(_is_skipped, path.relative_to(folder).parts[:-1]))
        for folder in folders
    )


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in SKIPPED
