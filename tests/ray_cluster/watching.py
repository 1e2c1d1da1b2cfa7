"""What the tests see of servers whose replicas run in a Ray cluster."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Server

PLACED = str(Path(__file__).parent / "apps" / "placed.py")
Start = Callable[..., Server]


def installed_ray() -> Any:
    """Ray, which most environments do not have: neither has the type checker."""
    return importlib.import_module("ray")


def actors() -> list[str]:
    """The names of jitney's actors in the cluster."""
    listed: list[dict[str, str]] = installed_ray().util.list_named_actors(all_namespaces=True)
    return sorted(actor["name"] for actor in listed if actor["namespace"] == "jitney")


def provider(server: Server) -> list[int]:
    """The process of the server's provider."""
    found: list[int] = []
    for pid in server.family():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"jitney.backends.ray" in words:
            found.append(pid)
    return found


def answers_of(server: Server, count: int) -> list[dict[str, Any]]:
    """What `count` requests at once are answers_of, each by its replica; every answer is to its own item."""
    replies = [(f"item-{number}", server.submit("/placed", f"item-{number}")) for number in range(count)]
    answers = [(item, reply.result().json()) for item, reply in replies]
    assert all(answer["item"] == item for item, answer in answers), answers
    return [answer for _, answer in answers]
