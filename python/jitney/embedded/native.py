"""What a program asks of the Rust side."""

from typing import TYPE_CHECKING

from jitney.extension import core

if TYPE_CHECKING:
    from jitney._core import Engine, Mailbox, Remote

__all__ = ["engine", "mailbox", "remote"]


def engine(settings: str) -> "Engine":
    """Start an engine in this process."""
    return core().Engine(settings)


def remote(place: str, key: str | None) -> "Remote":
    """Dial a server."""
    return core().Remote(place, key)


def mailbox(event_loop: object) -> "Mailbox":
    """Make the mailbox of an event loop."""
    return core().Mailbox(event_loop)
