"""The log is the least important thing that a server does: a reader that stops or leaves costs lines, nothing else."""

import fcntl
import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from harness import until

APPS = Path(__file__).parent / "apps"


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=10)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(self.path)


@contextmanager
def serving(
    path: str, stderr: "int | IO[bytes] | None", *, closed: bool = False
) -> Generator["subprocess.Popen[bytes]", None, None]:
    command = [sys.executable, "-m", "jitney", "serve", "noop.py", "--listen", f"unix:{path}"]
    if closed:
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    process = subprocess.Popen(command, cwd=APPS, stderr=stderr)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answer(path: str) -> bytes | None:
    connection = UnixConnection(path)
    try:
        connection.request("POST", "/shout", b'"hello"', {"content-type": "application/json"})
        response = connection.getresponse()
        return response.read() if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def full_pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    flags = fcntl.fcntl(writer, fcntl.F_GETFL)
    fcntl.fcntl(writer, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        fcntl.fcntl(writer, fcntl.F_SETFL, flags)
    return reader, writer


def gone_reader() -> tuple[int, int]:
    reader, writer = os.pipe()
    os.close(reader)
    return -1, writer


@pytest.mark.parametrize("pipe", [full_pipe, gone_reader])
def test_a_log_that_nobody_reads_stops_nothing(pipe: Callable[[], tuple[int, int]], tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    reader, writer = pipe()
    with serving(path, writer) as process:
        os.close(writer)
        assert until(lambda: answer(path), "an answer") is not None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    if reader >= 0:
        os.close(reader)


def test_a_stderr_that_is_closed_stops_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with serving(path, None, closed=True) as process:
        assert until(lambda: answer(path), "an answer") is not None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_what_a_client_does_wrong_fills_no_log(tmp_path: Path) -> None:
    path, log = str(tmp_path / "socket"), tmp_path / "log"
    with log.open("wb") as stderr, serving(path, stderr), socket.socket(socket.AF_UNIX) as client:
        until(lambda: b"try: " in log.read_bytes(), "the last line of the start")
        assert until(lambda: answer(path), "an answer") is not None
        before = log.read_bytes()
        client.settimeout(60)
        client.connect(path)

        def ping(flags: int, payload: bytes) -> bytes:
            return b"\x00\x00\x08\x06" + bytes([flags]) + bytes(4) + payload

        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        # Responses to requests that were never sent, and one request after them.
        client.sendall(ping(1, b"no-such!") * 1000 + ping(0, b"the-last"))
        received = b""
        while ping(1, b"the-last") not in received:
            received += client.recv(65536)
        assert log.read_bytes() == before
