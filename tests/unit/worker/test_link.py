"""The worker's end of a link as Python has it, against a front that reads and writes raw frames."""

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jitney import _core

BATCH, RESULTS, BATCH_END, SHUTDOWN = 32, 35, 41, 17
VALUES, FAILED, PART = 0, 1, 3
TAG_TEXT = 2
HOUR_MS = 3_600_000


class Front:
    """The other end."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, kind: int, table: bytes = b"", payload: bytes = b"") -> None:
        self._connection.sendall(
            b"JY" + bytes([3, kind]) + struct.pack("<IQ", len(table), len(payload)) + table + payload
        )

    def batch(self, number: int, items: dict[int, str], request_id: str = "") -> None:
        """Send texts by the item's id; `request_id` goes with each."""
        heads, parts, payload = b"", b"", b""
        for item, text in items.items():
            heads += struct.pack("<QIHBB", item, HOUR_MS, 1, 0, 1 if request_id else 0)
            if request_id:
                parts += _text(request_id) + _text("") + _text("") + struct.pack("<I", 0)
            parts += struct.pack("<HBBBQQ", 0, TAG_TEXT, 255, 0, len(payload), len(text))
            payload += text.encode()
        self.send(BATCH, _text("") + struct.pack("<QI", number, len(items)) + heads + parts, payload)

    def frame(self) -> tuple[int, bytes, bytes]:
        """Receive a frame: its kind, table and payload."""
        header = self._exactly(16)
        table, payload = struct.unpack("<IQ", header[4:])
        return header[3], self._exactly(table), self._exactly(payload)

    def entries(self) -> list[tuple[int, int, int, str]]:
        """Receive results of texts: (item, sequence, status, text)."""
        kind, table, payload = self.frame()
        assert kind == RESULTS
        (count,) = struct.unpack("<I", table[12:16])
        rest, entries = table[16:], list[tuple[int, int, int, str]]()
        for _ in range(count):
            item, sequence, status = struct.unpack("<QIB", rest[:13])
            rest, text = rest[13:], ""
            if status in {VALUES, PART}:
                # One value: count, name, tag, dtype, axes, media type, offset, length.
                offset, length = struct.unpack("<QQ", rest[13:29])
                text, rest = payload[offset : offset + length].decode(), rest[29:]
            entries.append((item, sequence, status, text))
        return entries

    def _exactly(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            piece = self._connection.recv(count - len(received))
            assert piece, "the worker has closed the link"
            received += piece
        return received


def _text(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode()


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple["_core.Link", Front]]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    listener.listen()
    link = _core.Link(f"unix:{tmp_path / 'socket'}", "token")
    connection, _ = listener.accept()
    connection.settimeout(30)
    front = Front(connection)
    assert front.frame()[0] == 1
    yield link, front
    listener.close()
    # Left open: a link whose front goes away ends its process, which is right for a worker and not for a test.
    connection.detach()


def test_parts_and_early_results_leave_before_the_batch_ends(ends: tuple["_core.Link", Front]) -> None:
    link, front = ends
    front.batch(7, {1: "a", 2: "b", 3: "c"})
    batch = link.next_batch()
    assert batch is not None and batch.values() == ["a", "b", "c"]
    results = _core.Results(batch)
    parts = results.parts()
    parts.values([0], TAG_TEXT, [b"one"])
    link.send_results(results, 0.001)
    assert front.entries() == [(1, 0, PART, "one")]
    results.values([1], TAG_TEXT, [b"whole"])
    link.send_results(results)
    assert front.entries() == [(2, 0, VALUES, "whole")]
    with pytest.raises(ValueError, match="the end of item 1 was sent before"):
        results.values([1], TAG_TEXT, [b"again"])
    parts.values([0], TAG_TEXT, [b"two"])
    link.send_results(results)
    assert front.entries() == [(1, 1, PART, "two")]
    results.values([0], TAG_TEXT, [b"three"])
    results.values([2], TAG_TEXT, [b"c!"])
    link.finish(results, 0.0, 0.002, 0.0)
    assert front.entries() == [(1, 2, VALUES, "three"), (3, 0, VALUES, "c!")]
    kind, table, _ = front.frame()
    assert (kind, struct.unpack("<QIIIB", table)) == (BATCH_END, (7, 0, 2000, 0, 1))


def test_a_batch_whose_results_were_all_sent_ends_with_its_end_alone(ends: tuple["_core.Link", Front]) -> None:
    link, front = ends
    front.batch(8, {1: "a"})
    batch = link.next_batch()
    assert batch is not None
    results = _core.Results(batch)
    results.error(0, "model_failed", "it raised")
    link.send_results(results)
    kind, table, _ = front.frame()
    assert (kind, struct.unpack("<QIB", table[16:29])) == (RESULTS, (1, 0, FAILED))
    link.finish(results, 0.0, 0.0, 0.0, clean=False)
    assert front.frame()[0] == BATCH_END


def test_an_answer_above_the_limit_fails_alone_and_is_not_sent(ends: tuple["_core.Link", Front]) -> None:
    link, front = ends
    front.batch(9, {1: "a", 2: "b"})
    batch = link.next_batch()
    assert batch is not None
    results = _core.Results(batch, 1000)
    results.values([0, 1], TAG_TEXT, [b"x" * 1001, b"y" * 1000])
    link.finish(results, 0.0, 0.0, 0.0)
    kind, table, payload = front.frame()
    assert (kind, payload) == (RESULTS, b"y" * 1000)
    assert struct.unpack("<QIB", table[16:29]) == (1, 0, FAILED)
    assert b"has 1001 bytes, allowed are 1000 (max_answer_bytes)" in table
    assert front.frame()[0] == BATCH_END


def test_what_comes_after_an_answer_that_is_too_large_is_ignored(ends: tuple["_core.Link", Front]) -> None:
    link, front = ends
    front.batch(9, {1: "a", 2: "b"})
    batch = link.next_batch()
    assert batch is not None
    results = _core.Results(batch, 1000)
    parts = results.parts()
    parts.values([0, 1], TAG_TEXT, [b"x" * 600, b"y" * 600])
    link.send_results(results, 0.0)
    assert front.frame()[0] == RESULTS
    assert results.too_large() == []
    parts.values([0], TAG_TEXT, [b"x" * 600])
    link.send_results(results, 0.0)
    assert b"has 1200 bytes, allowed are 1000 (max_answer_bytes)" in front.frame()[1]
    assert results.too_large() == [0]
    parts.values([0, 1], TAG_TEXT, [b"x" * 600, b"y"])
    results.end(0, "stop")
    results.error(0, "model_failed", "too late")
    results.end(1, "stop")
    link.finish(results, 0.0, 0.0, 0.0)
    kind, _, payload = front.frame()
    assert (kind, payload) == (RESULTS, b"y")
    assert front.frame()[0] == BATCH_END


def test_taking_a_batch_does_not_wait(ends: tuple["_core.Link", Front]) -> None:
    link, front = ends
    assert link.take() == (None, True)
    front.batch(1, {1: "a"})
    batch = _until(link)
    assert batch is not None and batch.ids == [1]
    front.send(SHUTDOWN)
    assert _until(link) is None


def _until(link: "_core.Link") -> "_core.Batch | None":
    """Take until there is a batch, or none will come."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        batch, is_open = link.take()
        if batch is not None or not is_open:
            return batch
    raise AssertionError("nothing came")


def test_the_ids_of_requests_come_with_their_items(ends: tuple["_core.Link", Front]) -> None:
    link, front = ends
    front.batch(1, {1: "a", 2: "b"}, request_id="request-7")
    batch = link.next_batch()
    assert batch is not None and batch.request_ids == ["request-7", "request-7"]
    front.batch(2, {3: "c"})
    batch = link.next_batch()
    assert batch is not None and batch.request_ids == [""]
