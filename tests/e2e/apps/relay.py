"""A deployment that calls another one of the same server."""

import os

import jitney
from witness import record, wait_at_gate

PROGRAMS = os.environ["JITNEY_TEST_PROGRAMS"]


@jitney.deployment
def inner(texts: list[str]) -> list[str]:
    record("inner", texts)
    wait_at_gate()
    return [text + "!" for text in texts]


@jitney.deployment
def outer(texts: list[str]) -> list[str]:
    """Asks twice over one connection, and then over another one."""
    with jitney.connect_sync(PROGRAMS) as server:
        twice = [server.inner(server.inner(text)) for text in texts]
    with jitney.connect_sync(PROGRAMS) as server:
        return [server.inner(text) for text in twice]
