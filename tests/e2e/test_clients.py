"""Slow, half-open and garbage clients next to a well-behaved one."""

import socket
from contextlib import ExitStack, suppress

from harness import Serve

HEADER = b"POST /noop HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"

HALF: list[bytes] = [
    b"",
    b"P",
    b"POST /noop HT",
    HEADER,
    HEADER + b"content-length: 100\r\n\r\n",
    HEADER + b'content-length: 100\r\n\r\n{"a":',
    HEADER + b"transfer-encoding: chunked\r\n\r\n5\r\n{",
]

GARBAGE: list[bytes] = [
    b"\x00" * 64 + b"\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /noop HTTP/1.1\r\nhost : x\r\n\r\n",
    b"POST /noop HTTP/1.1\r\nhost: x\r\n folded\r\n\r\n",
    HEADER + b"content-length: -1\r\n\r\n",
    HEADER + b"content-length: 1, 2\r\n\r\n{}",
    HEADER + b"content-length: 1\r\ncontent-length: 2\r\n\r\n{}",
    HEADER + b"content-length: 99999999999999999999999\r\n\r\n",
    HEADER + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    HEADER + b"transfer-encoding: gzip\r\n\r\n{}",
    HEADER + b"x: " + b"y" * (1 << 20) + b"\r\n\r\n",
]


def read_all(connection: socket.socket) -> bytes:
    received = bytearray()
    with suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            received += piece
    return bytes(received)


def test_half_open_clients_do_not_keep_the_honest_from_their_answers(serve: Serve) -> None:
    server = serve("noop.py")
    with ExitStack() as stack:
        for number in range(400):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            half.sendall(HALF[number % len(HALF)])
        with server.client() as honest:
            for number in range(200):
                assert honest.post("/noop", {"n": number}).json() == {"n": number}
            assert honest.get("/readyz").status == 200


def test_garbage_is_refused_and_the_next_request_gets_its_answer(serve: Serve) -> None:
    server = serve("noop.py")
    for garbage in GARBAGE:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            with suppress(OSError):  # it may have hung up already, as it should
                connection.sendall(garbage)
                connection.shutdown(socket.SHUT_WR)
            received = read_all(connection)
        assert not received or received.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), (garbage[:80], received[:200])
        assert server.post("/noop", {"after": "garbage"}).json() == {"after": "garbage"}


def test_clients_that_pipeline_and_never_read_cost_a_bounded_amount(serve: Serve) -> None:
    server = serve("noop.py")
    body = b'{"text":"' + b"x" * 4000 + b'"}'
    request = HEADER + b"content-length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    before = server.resident_bytes()
    with ExitStack() as stack:
        for _ in range(20):
            greedy = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            greedy.setblocking(False)
            sent = 0
            while sent < 4 << 20:
                try:
                    sent += greedy.send(request * 16)
                except BlockingIOError:
                    break  # the server reads no more: that is the point
        with server.client() as honest:
            for number in range(100):
                assert honest.post("/noop", {"n": number}).json() == {"n": number}
        assert server.resident_bytes() - before < 64 << 20


def test_bodies_above_the_limit_are_refused_before_they_are_sent(serve: Serve) -> None:
    server = serve("noop.py")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(HEADER + b"content-length: 10000000000\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")
    assert server.post("/noop", {"a": 1}).json() == {"a": 1}
