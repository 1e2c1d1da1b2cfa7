"""What loads the servers: wrk for closed loops; for open loops, checked answers and idle connections, asyncio."""

import asyncio
import json
import random
import resource
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
BROKEN = (OSError, asyncio.IncompleteReadError, ValueError)
"""What a request without an answer raises."""
PATIENCE_S = 30.0
"""A request of an open loop that is not answered so long after the last one was sent is broken."""


def wrk(url: str, connections: int, seconds: float, content_type: str, body: str) -> dict[str, float]:
    """One closed-loop run: each connection asks again as soon as it is answered."""
    command = [
        "wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{seconds:.0f}s", "--timeout", "30s",
        "--latency", "--script", str(HERE / "post.lua"), url, "--", content_type, body,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    # wrk counts a refusal as a request; what is broken it does not count.
    figures["rps"] = (figures["requests"] - figures["refused"]) / figures["duration_s"]
    return figures


class Connection:
    """A minimal HTTP/1.1 client over one connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        assert self._reader
        try:
            self._writer.write(
                b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (path.encode(), len(body), body)
            )
            header = await self._reader.readuntil(b"\r\n\r\n")
            return int(header[9:12]), await self._body(self._reader, header.lower())
        except BROKEN:
            self.close()
            raise

    @staticmethod
    async def _body(reader: asyncio.StreamReader, header: bytes) -> bytes:
        if b"transfer-encoding: chunked" not in header:
            return await reader.readexactly(int(header.partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
        return body

    def close(self) -> None:
        if self._writer:
            self._writer.close()
        self._reader = self._writer = None


@dataclass
class Outcome:
    """The result of an offered load."""

    seconds: float = 0.0
    answered_ms: list[float] = field(default_factory=list)
    refused_ms: list[float] = field(default_factory=list)
    wrong: int = 0
    broken: int = 0

    def within(self, limit_ms: float) -> float:
        """Answers per second that came in time: goodput."""
        return sum(1 for took in self.answered_ms if took <= limit_ms) / self.seconds


def is_own(answer: bytes, text: str) -> bool:
    """Whether this is the answer to that text. A body that is not JSON is not."""
    try:
        return json.loads(answer) == {"text": text}
    except ValueError:
        return False


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0


async def settle(tasks: set[asyncio.Task[None]], outcome: Outcome) -> None:
    """Wait for requests in flight. Those that are still not answered are broken."""
    if not tasks:
        return
    _, pending = await asyncio.wait(tasks, timeout=PATIENCE_S)
    outcome.broken += len(pending)
    for task in pending:  # their connections are closed next, which must not count them again
        task.cancel()


async def open_loop(port: int, path: str, rate: float, seconds: float, seed: int = 1) -> Outcome:
    """Arrivals at `rate` a second whatever the answers do; latency counts from the arrival, not from the sending."""
    outcome, generator = Outcome(seconds=seconds), random.Random(seed)
    idle: list[Connection] = []
    every: set[Connection] = set()
    tasks: set[asyncio.Task[None]] = set()

    async def one(arrival: float, number: int) -> None:
        connection = idle.pop() if idle else Connection(port)
        every.add(connection)
        body = json.dumps({"text": f"request {number}"}).encode()
        try:
            status, answer = await connection.post(path, body)
        except BROKEN:
            outcome.broken += 1
            return
        took = (time.perf_counter() - arrival) * 1000
        if status == 200:
            outcome.answered_ms.append(took)
            outcome.wrong += not is_own(answer, f"request {number}")
        else:
            outcome.refused_ms.append(took)
        idle.append(connection)

    arrival = begin = time.perf_counter()
    number = 0
    while arrival < begin + seconds:
        arrival += generator.expovariate(rate)
        await asyncio.sleep(max(0.0, arrival - time.perf_counter()))
        task = asyncio.create_task(one(arrival, number))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        number += 1
    await settle(tasks, outcome)
    for connection in every:
        connection.close()
    return outcome


async def closed_loop(port: int, path: str, clients: int, seconds: float) -> Outcome:
    """Clients that send unique bodies and check that each answer is their own."""
    outcome, end = Outcome(seconds=seconds), time.perf_counter() + seconds

    async def client(name: int) -> None:
        connection, count = Connection(port), 0
        while time.perf_counter() < end:
            text, count = f"client {name} request {count}", count + 1
            sent = time.perf_counter()
            try:
                status, answer = await connection.post(path, json.dumps({"text": text}).encode())
            except BROKEN:
                outcome.broken += 1
                continue
            if status == 200:
                outcome.answered_ms.append((time.perf_counter() - sent) * 1000)
                outcome.wrong += not is_own(answer, text)
            else:
                outcome.refused_ms.append((time.perf_counter() - sent) * 1000)
        connection.close()

    await asyncio.gather(*(client(name) for name in range(clients)))
    return outcome


class IdleConnections:
    """Many keep-alive connections, each after one request. Use as `async with`."""

    def __init__(self, port: int, path: str, count: int) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.count = min(count, hard - 500)
        self._path = path
        self._connections = [Connection(port) for _ in range(self.count)]

    async def __aenter__(self) -> "IdleConnections":
        body = json.dumps({"text": "one request, then silence"}).encode()
        for start in range(0, self.count, 100):
            await asyncio.gather(*(one.post(self._path, body) for one in self._connections[start : start + 100]))
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
