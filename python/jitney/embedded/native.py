"""What a program asks of the Rust side."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jitney.extension import core

if TYPE_CHECKING:
    from jitney._core import Engine, Mailbox, Remote

__all__ = ["engine", "mailbox", "remote", "substituted"]

_substitutes: dict[str, Callable[..., Any]] = {}
"""What tests put in place of the functions here, by name."""


@contextmanager
def substituted(**functions: Callable[..., Any]) -> Generator[None]:
    """Put other functions in place of those here while a block runs: for `jitney.testing`."""
    before = _substitutes.copy()
    _substitutes.update(functions)
    try:
        yield
    finally:
        _substitutes.clear()
        _substitutes.update(before)


def _made_by(name: str) -> Callable[..., Any]:
    return _substitutes.get(name) or getattr(core(), name.capitalize())


def engine(settings: str) -> "Engine":
    """Start an engine in this process."""
    return _made_by("engine")(settings)


def remote(place: str, key: str | None) -> "Remote":
    """Dial a server."""
    return _made_by("remote")(place, key)


def mailbox(event_loop: object) -> "Mailbox":
    """Make the mailbox of an event loop."""
    return _made_by("mailbox")(event_loop)
