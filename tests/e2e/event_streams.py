"""Answers in parts over the native route, as server-sent events."""

import json
import urllib.request
from http.client import HTTPResponse
from typing import Any

from harness import Server

EVENTS = "text/event-stream"


def stream(server: Server, path: str, item: object, **headers: str) -> HTTPResponse:
    """Send an item, and return the answer once its first part has come."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}",
        json.dumps(item).encode(),
        {"accept": EVENTS, "content-type": "application/json", **headers},
    )
    return urllib.request.urlopen(request, timeout=60)


def events(body: str) -> list[tuple[str, Any]]:
    """Return the name and the data of each event; every event is complete."""
    blocks = body.split("\n\n")
    assert blocks.pop() == ""
    found = list[tuple[str, Any]]()
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields.get("event", ""), json.loads(fields["data"])))
    return found


def failure(reply: HTTPResponse) -> str:
    """Read a stream to its end, which is an error, and return its reason."""
    name, problem = events(reply.read().decode().lstrip("\n"))[-1]
    assert name == "error"
    return problem["reason"]
