"""Clients that read more slowly than the model answers: they stop only themselves."""

import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import Serve, Server, until

LINES = "application/x-ndjson"
ENDLESS = 1_000_000_000


class Stalled:
    """A stream that is read only when the test says so."""

    def __init__(
        self, server: Server, path: str, parts: int, letters: int = 10_000, *, receive_buffer: int = 4096
    ) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(60)
        self._socket.connect(("127.0.0.1", server.port))
        body = json.dumps({"parts": parts, "letters": letters}).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\naccept: {LINES}\r\nconnection: close\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def read(self) -> list[str]:
        """Read to the end; returns the lines of the body."""
        with self._socket, self._socket.makefile("rb") as file:
            while file.readline().strip():
                pass
            body = b""
            while size := int(file.readline(), 16):
                body += file.read(size)
                file.readline()
        return body.decode().splitlines()

    def read_slowly(self, at_once: int, pause_s: float) -> bytes:
        """Read so many bytes after each pause, to the end."""
        found = bytearray()
        with self._socket:
            while data := self._socket.recv(at_once):
                found += data
                time.sleep(pause_s)
        return bytes(found)

    def close(self) -> None:
        self._socket.close()


def numbers(lines: list[str]) -> list[int]:
    """Return the numbers of all parts; the last line is the end."""
    *parts, end = [json.loads(line) for line in lines]
    assert end == {"end": {"reason": "stop"}}
    return [part["part"]["number"] for part in parts]


def paused(server: Server) -> int:
    return int(server.metric("jitney_paused_items"))


def wait_paused(server: Server) -> None:
    """Wait until one item is paused for good: before, the system takes some of its parts."""

    def is_still() -> bool:
        made = server.metric("jitney_parts_total")
        time.sleep(0.1)
        return paused(server) == 1 and server.metric("jitney_parts_total") == made

    until(is_still, "one item is paused")


def resident(server: Server) -> int:
    """Bytes of memory that the front has."""
    fields = Path(f"/proc/{server.process.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_client_that_never_reads_is_paused_and_the_others_go_on(serve: Serve) -> None:
    server = serve("flowing.py")
    stalled = Stalled(server, "/steps", ENDLESS)
    wait_paused(server)

    def parts() -> float:
        return server.metric("jitney_parts_total", deployment="steps")

    def read(_: int) -> list[int]:
        reply = server.post("/steps", {"parts": 300}, {"accept": LINES})
        return numbers(reply.body.decode().splitlines())

    before, memory, untaken = parts(), resident(server), server.metric("jitney_untaken_bytes")
    with ThreadPoolExecutor(15) as threads:
        for found in threads.map(read, range(60)):
            assert found == list(range(300))
    assert parts() - before == 60 * 300, "no step was made for the one that does not read"
    assert paused(server) == 1
    until(lambda: server.metric("jitney_untaken_bytes") == untaken, "no more waits than before")
    assert resident(server) - memory < 32 << 20
    stalled.close()
    until(lambda: server.metric("jitney_active_items", deployment="steps") == 0, "it is released")


@pytest.mark.parametrize("path", ["/steps", "/one", "/together", "/aside"])
def test_a_paused_client_that_reads_gets_every_part_in_order(serve: Serve, path: str) -> None:
    server = serve("flowing.py")
    stalled = Stalled(server, path, 3000)
    wait_paused(server)
    made = server.metric("jitney_parts_total", deployment=path[1:])
    assert made < 3000
    assert numbers(stalled.read()) == list(range(3000))
    until(lambda: server.metric("jitney_streams_total", deployment=path[1:], outcome="ok") == 1, "the count")
    assert paused(server) == 0


def test_a_paused_client_that_leaves_is_cancelled(serve: Serve) -> None:
    server = serve("flowing.py")
    for path in ("steps", "one", "together", "aside"):
        stalled = Stalled(server, f"/{path}", ENDLESS)
        wait_paused(server)
        stalled.close()
        until(lambda: paused(server) == 0, "its pause ends")
        until(lambda name=path: server.metric("jitney_streams_total", deployment=name, outcome="cancelled") == 1, "it")
        assert server.post(f"/{path}", {"parts": 2, "letters": 1}).status == 200, "its place is free"


@pytest.mark.parametrize("path", ["steps", "one"])
def test_a_client_that_reads_nothing_for_too_long_is_too_slow(serve: Serve, path: str) -> None:
    server = serve("flowing.py", arguments=("--body-timeout-s", "1", "--access-log", "1"))
    stalled = Stalled(server, f"/{path}", ENDLESS)
    wait_paused(server)

    def ended(outcome: str) -> float:
        return server.metric("jitney_streams_total", deployment=path, outcome=outcome)

    until(lambda: ended("too_slow") == 1, "it is ended")
    until(lambda: f"deployment={path} outcome=too_slow" in server.log(), "its line in the access log")
    assert "too_slow: the client" in server.log()
    assert server.metric("jitney_requests_total", deployment=path, outcome="too_slow") == 1
    assert server.metric("jitney_requests_total", deployment=path, outcome="cancelled") == ended("cancelled") == 0
    until(lambda: server.metric("jitney_running_items", deployment=path) == 0, "its worker is free")
    assert server.post(f"/{path}", {"parts": 2, "letters": 1}).status == 200
    stalled.close()


def test_a_client_that_reads_slowly_and_steadily_gets_everything(serve: Serve) -> None:
    server = serve("flowing.py", arguments=("--body-timeout-s", "1"))
    # So fast that it is far above the least rate, and so slow that the kernel's own buffer would hide what it reads.
    reader = Stalled(server, "/steps", 500, receive_buffer=64 << 10)
    found = reader.read_slowly(14_000, 0.02)
    assert found.endswith(b"0\r\n\r\n"), "the connection was not closed before the end"
    assert found.count(b'{"part":') == 500
    until(lambda: server.metric("jitney_streams_total", deployment="steps", outcome="ok") == 1, "the count")
