"""Clients of the stories: each answer is looked at, and latency counts from the instant at which a request was due."""

import asyncio
import importlib.util
import random
import statistics
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from stories.story import Figures, Sample

T = TypeVar("T")


class Talk(NamedTuple):
    """What is asked where, and what is an answer."""

    path: str
    question: Callable[[int], bytes]
    """The body of the n-th request; no two are the same."""
    is_answer: Callable[[int, bytes], bool]
    """Whether this is the answer to the n-th request."""
    accept: str = "*/*"


class Connection(asyncio.Protocol):
    """One kept-alive HTTP/1.1 connection with one request at a time; lean: it shares the machine with the servers."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.first_at: float | None = None
        """The instant at which the first event of the last answer was there, if the answer is a stream of events."""

    @classmethod
    async def open(cls, port: int) -> "Connection":
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def post(self, path: str, body: bytes, accept: str = "*/*") -> tuple[int, bytes]:
        """Send; the status and the body of the answer. Raises `ConnectionError` if the connection ends before."""
        if self._transport is None:
            raise ConnectionError("closed")
        self._answer = asyncio.get_running_loop().create_future()
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        head += f"accept: {accept}\r\ncontent-length: {len(body)}\r\n\r\n"
        self._received.clear()
        self.first_at = None
        self._transport.write(head.encode() + body)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self.first_at is None and b"\n\n" in self._received:  # the end of an event; the head ends otherwise
            self.first_at = time.perf_counter()
        head, is_whole, rest = bytes(self._received).partition(b"\r\n\r\n")
        if not is_whole or self._answer is None:
            return
        head = head.lower()
        body = unchunked(rest) if b"transfer-encoding: chunked" in head else measured(rest, head)
        if body is not None:
            self._received.clear()
            if not self._answer.done():
                self._answer.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection"))

    def close(self) -> None:
        if self._transport:
            self._transport.close()


def measured(rest: bytes, head: bytes) -> bytes | None:
    """The body whose length the head says; None while it is not all there."""
    length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    return rest if len(rest) >= length else None


def unchunked(rest: bytes) -> bytes | None:
    """The body that came in chunks; None while it is not all there."""
    body = b""
    while True:
        size, is_whole, rest = rest.partition(b"\r\n")
        if not is_whole or len(rest) < (length := int(size, 16)) + 2:
            return None
        if length == 0:
            return body
        body, rest = body + rest[:length], rest[length + 2 :]


@dataclass
class Outcome:
    """The result of a load: latencies of the requests that count, and when answers came in the window."""

    answered_ms: list[float] = field(default_factory=list[float])
    done_s: list[float] = field(default_factory=list[float])
    """When answers came in the window."""
    first_ms: list[float] = field(default_factory=list[float])
    """Times to the first event of those answers that are streams of events."""
    wrong: int = 0
    """Answers with another status, or that were not the answer to what was asked, in the window or before."""
    missing: int = 0

    def figures(self) -> Figures:
        return {
            "rps": rate(self.done_s),
            "p50_ms": quantile(self.answered_ms, 0.5),
            "p95_ms": quantile(self.answered_ms, 0.95),
            "p99_ms": quantile(self.answered_ms, 0.99),
            "wrong": self.wrong,
            "missing": self.missing,
        }

    def curve(self) -> list[tuple[float, float]]:
        """Latency in ms by percentile."""
        return [(p, quantile(self.answered_ms, p / 100)) for p in (*range(0, 100, 5), 96, 97, 98, 99, 99.5)]

    def sample(self) -> Sample:
        return Sample(self.figures(), self.curve())


def rate(done_s: list[float]) -> float:
    """Answers per second: the slope of their count.

    Batches end in steps; their number in a window would be off by up to one, which is much where a batch takes seconds.
    """
    if len(done_s) < 2 or done_s[0] == done_s[-1]:
        return 0.0
    return statistics.linear_regression(done_s, range(len(done_s))).slope


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Load:
    """Asks one server and keeps the count."""

    def __init__(self, port: int, talk: Talk, warm_s: float, window_s: float) -> None:
        self._port, self._talk = port, talk
        self._from = time.perf_counter() + warm_s
        self._until = self._from + window_s
        self._asked = 0
        self._answers: list[tuple[int, bytes]] = []
        self.outcome = Outcome()

    async def ask(self, connection: Connection, due: float) -> bool:
        """Whether the connection can be used again."""
        number, self._asked = self._asked, self._asked + 1
        try:
            status, answer = await connection.post(self._talk.path, self._talk.question(number), self._talk.accept)
        except OSError:
            self.outcome.missing += 1
            return False
        now = time.perf_counter()
        if status != 200:
            self.outcome.wrong += 1
            return True
        self._answers.append((number, answer))
        if self._from <= now < self._until:
            self.outcome.done_s.append(now)
        if self._concerns(due, now):
            self.outcome.answered_ms.append((now - due) * 1e3)
            if connection.first_at is not None:
                self.outcome.first_ms.append((connection.first_at - due) * 1e3)
        return True

    def _concerns(self, due: float, ended: float) -> bool:
        """Whether a request counts: due in the window, or waited through the whole of it (as in `jitney bench`).

        Without the second rule a server that leaves some of its users waiting, from the warm-up on, would look quick.
        """
        return self._from <= due < self._until or (due < self._from and ended >= self._until)

    def _checked(self) -> Outcome:
        """Look at all answers: after the load, as to look takes time that others would wait for."""
        self.outcome.wrong += sum(not self._talk.is_answer(number, answer) for number, answer in self._answers)
        self._answers.clear()
        return self.outcome

    async def closed(self, users: int) -> Outcome:
        """Users who ask again as soon as they are answered."""

        async def user() -> None:
            connection = await Connection.open(self._port)
            while (now := time.perf_counter()) < self._until:
                if not await self.ask(connection, now):
                    await asyncio.sleep(0.1)
                    connection = await Connection.open(self._port)
            connection.close()

        await asyncio.gather(*(user() for _ in range(users)))
        return self._checked()

    async def steady(self, rate: float, seed: int) -> Outcome:
        """Independent clients, `rate` per second on average, at the same instants for every server."""
        idle: list[Connection] = []
        every: list[Connection] = []
        tasks: set[asyncio.Task[None]] = set()

        async def stranger(due: float) -> None:
            while idle and not idle[-1].is_open:  # the server does not keep those that are not used
                idle.pop()
            if idle:
                connection = idle.pop()
            else:
                try:
                    connection = await Connection.open(self._port)
                except OSError:
                    self.outcome.missing += 1
                    return
                every.append(connection)
            if await self.ask(connection, due):
                idle.append(connection)

        for offset in arrivals(rate, self._until - self._from, seed):
            due = self._from + offset
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            tasks.add(task := asyncio.create_task(stranger(due)))
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks, timeout=30)
        self.outcome.missing += len(tasks)
        for connection in every:
            connection.close()
        return self._checked()


LONGEST_S = 180
"""A load that lasts longer has lost its server."""


def run(load: Coroutine[Any, Any, T]) -> T:
    """Run a load in the fastest event loop that is installed."""
    uvloop = importlib.import_module("uvloop") if importlib.util.find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop else None) as runner:
        return runner.run(asyncio.wait_for(load, LONGEST_S))


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Instants of Poisson arrivals, in seconds from the start."""
    generator, at, found = random.Random(seed), 0.0, list[float]()
    while (at := at + generator.expovariate(rate)) < seconds:
        found.append(at)
    return found
