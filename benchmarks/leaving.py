"""How much a model computes for clients that leave in the middle of their streams."""

import asyncio
import itertools
import json
import re
import time
import urllib.request
from typing import Any

from servers import Running

USERS, LEAVES_AFTER = 64, 5
"""Every second user closes its connection when it has read so many parts."""
ITEM_STEPS = re.compile(r"^jitney_step_items_sum\S* (\S+)$", re.M)
ACTIVE = re.compile(r"^jitney_active_items\S* (\S+)$", re.M)


def figures(running: Running, items: list[Any], seconds: float) -> dict[str, float]:
    """Steps of all items, against those that were begun for a client that was there.

    Each step of an item is a part. The step that runs when a client leaves was begun before that. Its part is not read.
    """
    before = at_rest(running)
    read, left = asyncio.run(crowd(running, items, seconds))
    steps = at_rest(running) - before
    return {"read": read, "left": left, "of_wanted": steps / (read + left), "unread_each": (steps - read) / left}


def at_rest(running: Running) -> float:
    """Steps of all items so far, when none is active."""
    address = running.url.removesuffix(running.path) + "/metrics"
    while True:
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
        if sum(map(float, ACTIVE.findall(text))) == 0:
            return sum(map(float, ITEM_STEPS.findall(text)))
        time.sleep(0.1)


async def crowd(running: Running, items: list[Any], seconds: float) -> tuple[int, int]:
    """How many parts all users have read, and how many streams were left."""
    end, bodies = time.monotonic() + seconds, itertools.cycle(json.dumps(item).encode() for item in items)

    async def user(leaves: bool) -> tuple[int, int]:
        read = left = 0
        while time.monotonic() < end:
            parts, is_whole = await stream(running, next(bodies), LEAVES_AFTER if leaves else None)
            read, left = read + parts, left + (not is_whole)
        return read, left

    users = await asyncio.gather(*(user(number % 2 == 0) for number in range(USERS)))
    return sum(read for read, _ in users), sum(left for _, left in users)


async def stream(running: Running, body: bytes, most: int | None) -> tuple[int, bool]:
    """Read a stream, at most so many parts of it. Returns how many were read, and whether that was the whole stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    head = f"POST {running.path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nconnection: close\r\n"
    writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    read, is_whole = 0, False
    while (most is None or read < most) and (line := await reader.readline()):
        read += line.startswith(b'data: "')
        is_whole = is_whole or line.startswith(b"event: end")
    writer.close()
    assert is_whole or read == most, f"a stream had no end after {read} parts"
    return read, is_whole
