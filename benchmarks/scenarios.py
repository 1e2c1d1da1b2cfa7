"""What is measured, and against what. Each scenario measures one server once; `run.py` repeats and compares."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import doors
import load
import protocols
import servers
from servers import Running
from stories import starting

JSON, RAW = "application/json", "application/octet-stream"
BODY = json.dumps({"text": "a body of fifty-seven characters, as every server here gets"})
CHAT = {"model": "chunks", "messages": [{"role": "user", "content": "Write."}], "stream": True}
ONE_MB = "size:1000000"
FULL_BATCH_S = 0.005 + 64 * 0.0001
ALL = ("jitney", "hyper", "mosec", "fastapi")


@dataclass(frozen=True)
class Settings:
    """How long one measurement takes."""

    seconds: float
    stress_seconds: float


Measure = Callable[[Running, Settings], dict[str, float]]


@dataclass(frozen=True)
class Scenario:
    """One thing to measure, on these servers, with this model."""

    name: str
    model: str
    measure: Measure
    servers: tuple[str, ...] = ALL
    is_fresh: bool = False
    """Whether each measurement starts a new server, because it changes the server's state."""
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    needs: str | None = "wrk"
    """The generator that it needs."""
    program: str = ""
    """Not a server but a program of `programs.py`; `servers` are its variants."""


def in_program(program: str, variant: str, settings: Settings) -> dict[str, float]:
    """Run a program to its end; its figures."""
    command = [sys.executable, str(servers.HERE / "programs.py"), program, variant, str(settings.seconds)]
    environment = {**os.environ, "PYTHONPATH": starting.importing()}  # workers and databases find their modules too
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if ran.returncode != 0:
        raise RuntimeError(f"{program} with {variant} failed:\n{ran.stderr[-2000:]}")
    return json.loads(ran.stdout)


def of_program(name: str, program: str, *variants: str) -> Scenario:
    return Scenario(name, "", lambda _, __: {}, variants, needs=None, program=program)


def closed(connections: int, content_type: str = JSON, body: str = BODY) -> Measure:
    def measure(running: Running, settings: Settings) -> dict[str, float]:
        cpu = running.front_cpu_s()
        figures = load.wrk(running.url, connections, settings.seconds, content_type, body)
        figures["front_cpu_us"] = (running.front_cpu_s() - cpu) / max(figures["requests"], 1) * 1e6
        figures["resident_mb"] = running.resident_mb()
        return figures

    return measure


def offline_items_s() -> float:
    """Return how many items a second the model computes without a server: it sleeps a little longer than requested."""
    began, batches = time.perf_counter(), 40
    for _ in range(batches):
        time.sleep(FULL_BATCH_S)
    return 64 * batches / (time.perf_counter() - began)


def of_ceiling(connections: int) -> Measure:
    def measure(running: Running, settings: Settings) -> dict[str, float]:
        ceiling = offline_items_s()
        figures = load.wrk(running.url, connections, settings.seconds, JSON, BODY)
        return figures | {"ceiling_items_s": ceiling, "of_ceiling": figures["rps"] / ceiling}

    return measure


def idle_connections(running: Running, _: Settings) -> dict[str, float]:
    async def measure() -> dict[str, float]:
        before = running.resident_mb(front_only=True)
        async with load.IdleConnections(running.port, running.path, 10_000) as idle:
            after = running.resident_mb(front_only=True)
            return {"before_mb": before, "after_mb": after, "connections": idle.count}

    return asyncio.run(measure())


# Overload: 64 items in 0.4 s are 160 a second, slow enough that a generator in Python can offer ten times as much.
SLOW = (("BENCH_BASE_S", "0.4"), ("BENCH_ITEM_S", "0"))
SLOW_CAPACITY = 64 / 0.4
LIMIT_MS = max(1000.0, 5 * 400.0)


def overload(running: Running, settings: Settings) -> dict[str, float]:
    async def measure() -> dict[str, float]:
        goodput: list[float] = []
        for factor in (0.8, 1.0, 1.2):
            offered = await load.open_loop(
                running.port, running.path, SLOW_CAPACITY * factor, settings.stress_seconds / 3
            )
            goodput.append(offered.within(LIMIT_MS))
        at_10 = asyncio.create_task(
            load.open_loop(running.port, running.path, SLOW_CAPACITY * 10, settings.stress_seconds)
        )
        await asyncio.sleep(min(10.0, settings.stress_seconds / 3))
        early_mb = running.resident_mb(front_only=True)
        offered = await at_10
        late_mb = running.resident_mb(front_only=True)
        return {
            "peak_goodput": max(goodput),
            "goodput": offered.within(LIMIT_MS),
            "of_peak": offered.within(LIMIT_MS) / max(*goodput, 1e-9),
            "refused": len(offered.refused_ms),
            "refused_p99_ms": load.quantile(offered.refused_ms, 0.99),
            "memory_growth": late_mb / early_mb - 1,
            "wrong": offered.wrong,
            "broken": offered.broken,
        }

    return asyncio.run(measure())


def killed_workers(running: Running, settings: Settings) -> dict[str, float]:
    async def measure() -> dict[str, float]:
        clients = asyncio.create_task(load.closed_loop(running.port, running.path, 64, settings.stress_seconds))
        begin, kills = time.monotonic(), 0
        while time.monotonic() - begin < settings.stress_seconds - 2:
            await asyncio.sleep(2)
            if workers := running.workers():
                os.kill(workers[kills % len(workers)], signal.SIGKILL)
                kills += 1
        outcome = await clients
        return {
            "kills": kills,
            "answered": len(outcome.answered_ms),
            "failed": len(outcome.refused_ms) + outcome.broken,
            "wrong": outcome.wrong,
            "p99_ms": load.quantile(outcome.answered_ms, 0.99),
        }

    return asyncio.run(measure())


def of_protocols(measured: protocols.Measured) -> Measure:
    return lambda running, settings: measured(running, settings.seconds)


SCENARIOS: list[Scenario] = [
    Scenario("no-op, 1 connection", "noop", closed(1)),
    Scenario("no-op, 64 connections", "noop", closed(64)),
    Scenario("no-op, 256 connections", "noop", closed(256)),
    Scenario("1 MB raw bodies, 8 connections", "raw", closed(8, RAW, ONE_MB)),
    Scenario("5 ms + 0.1 ms per item, 64 connections", "sleepy", of_ceiling(64)),
    Scenario("5 ms + 0.1 ms per item, 256 connections", "sleepy", of_ceiling(256)),
    Scenario(
        "10,000 idle connections", "noop", idle_connections, ("jitney", "hyper"), is_fresh=True, needs=None
    ),
    Scenario(
        "overload, 10x", "sleepy", overload, ("jitney",), is_fresh=True, environment=SLOW, needs=None
    ),
    Scenario(
        "kill -9 every 2 s", "sleepy", killed_workers, ("jitney",), is_fresh=True,
        arguments=("--set", "sleepy.replicas=2"), needs=None,
    ),
    Scenario("64 items in one request", "echo", of_protocols(doors.many), ("jitney",), needs="h2load"),
    Scenario("OpenAI, one text", "echo", of_protocols(doors.openai), ("jitney",), needs="h2load"),
    Scenario("OpenAI, 2,048 inputs", "echo", of_protocols(doors.inputs), ("jitney",), needs=None),
    Scenario("open inference, 16 floats", "rows", of_protocols(protocols.SHORT_ARRAYS), ("jitney",), needs="h2load"),
    Scenario("open inference, 1 MB of floats", "rows", of_protocols(protocols.MEGABYTES), ("jitney",), needs="h2load"),
    of_program("await of a no-op, 1 at a time", "alone", "jitney", "connect"),
    of_program("await of a no-op, 64 at once", "at_once", "jitney", "connect"),
    of_program("await, 5 ms + 0.1 ms per item, 64 at once", "batches", "jitney", "connect", "pool"),
    of_program("I/O of 5 ms beside a model", "beside", "none", "loop", "thread", "pool", "jitney"),
]  # fmt: skip

Figures = dict[str, dict[str, dict[str, float]]]
"""scenario → server → median figures"""


@dataclass(frozen=True)
class Target:
    """A promise about the figures; `value` is None where a server that it needs was not measured."""

    what: str
    bound: float
    is_lower_better: bool
    value: Callable[[Figures], float | None]

    def holds(self, value: float) -> bool:
        return value <= self.bound if self.is_lower_better else value >= self.bound


def figure(scenario: str, name: str, server: str = "jitney") -> Callable[[Figures], float | None]:
    return lambda figures: figures.get(scenario, {}).get(server, {}).get(name)


def ratio(scenario: str, name: str, server: str) -> Callable[[Figures], float | None]:
    def value(figures: Figures) -> float | None:
        ours, theirs = figure(scenario, name)(figures), figure(scenario, name, server)(figures)
        return None if ours is None or not theirs else ours / theirs

    return value


def idle_ratio(figures: Figures) -> float | None:
    measured = figures.get("10,000 idle connections", {})
    if not {"jitney", "hyper"} <= measured.keys():
        return None
    ours, theirs = (measured[name]["after_mb"] - measured[name]["before_mb"] for name in ("jitney", "hyper"))
    return ours / theirs


NOOP_1, NOOP_64, NOOP_256, MB, SLEEPY_64, SLEEPY_256, IDLE, OVERLOAD, KILLS, MANY, OPENAI, INPUTS, FLOATS, MB_FLOATS = (
    scenario.name for scenario in SCENARIOS if not scenario.program
)
AWAIT_1, AWAIT_64, AWAIT_BATCHES, BESIDE = (scenario.name for scenario in SCENARIOS if scenario.program)


def between(scenario: str, name: str, server: str, other: str) -> Callable[[Figures], float | None]:
    def value(figures: Figures) -> float | None:
        found = figures.get(scenario, {})
        return found[server][name] / found[other][name] if {server, other} <= found.keys() else None

    return value


def above_own(figures: Figures) -> float | None:
    """The model alone in the event loop, where nothing disturbs it."""
    ours, own = figure(BESIDE, "model_p50_ms")(figures), figure(BESIDE, "model_p50_ms", "loop")(figures)
    return None if ours is None or own is None else ours - own


TARGETS: list[Target] = [
    Target("RPS at 64 connections / bare hyper", 0.5, False, ratio(NOOP_64, "rps", "hyper")),
    Target("RPS at 256 connections / bare hyper", 0.5, False, ratio(NOOP_256, "rps", "hyper")),
    Target("RPS at 64 connections / Mosec", 3, False, ratio(NOOP_64, "rps", "mosec")),
    Target("RPS at 256 connections / Mosec", 3, False, ratio(NOOP_256, "rps", "mosec")),
    Target("RPS at 64 connections / hand-batched FastAPI", 20, False, ratio(NOOP_64, "rps", "fastapi")),
    Target("RPS at 256 connections / hand-batched FastAPI", 20, False, ratio(NOOP_256, "rps", "fastapi")),
    Target("p50 at 1 connection, ms", 0.15, True, figure(NOOP_1, "p50_ms")),
    Target("p50 at 1 connection / bare hyper", 5, True, ratio(NOOP_1, "p50_ms", "hyper")),
    Target("memory of front and worker, MB", 80, True, figure(NOOP_64, "resident_mb")),
    Target("10,000 idle connections / bare hyper, MB", 1.2, True, idle_ratio),
    Target("1 MB raw bodies, requests/s", 500, False, figure(MB, "rps")),
    Target("1 MB raw bodies / Mosec", 2, False, ratio(MB, "rps", "mosec")),
    Target("CPU of the front per request at 64, µs", 8, True, figure(NOOP_64, "front_cpu_us")),
    Target("of the ceiling at 64 connections", 0.93, False, figure(SLEEPY_64, "of_ceiling")),
    Target("of the ceiling at 256 connections", 0.97, False, figure(SLEEPY_256, "of_ceiling")),
    Target("goodput at 10x / its peak", 0.95, False, figure(OVERLOAD, "of_peak")),
    Target("p99 of a refusal at 10x, ms", 5, True, figure(OVERLOAD, "refused_p99_ms")),
    Target("growth of memory at 10x", 0.05, True, figure(OVERLOAD, "memory_growth")),
    Target("requests failed under kill -9", 0, True, figure(KILLS, "failed")),
    Target("answers that were not their own under kill -9", 0, True, figure(KILLS, "wrong")),
    Target("items/s in requests of 64 / single", 4, False, figure(MANY, "batch_of_single")),
    Target("OpenAI with floats / native, requests/s", 0.7, False, figure(OPENAI, "float_of_native")),
    Target("OpenAI with base64 / native, requests/s", 0.7, False, figure(OPENAI, "base64_of_native")),
    Target("2,048 inputs / full batches, seconds", 1.1, True, figure(INPUTS, "of_full_batches")),
    Target("Open Inference in JSON / native, requests/s", 0.7, False, figure(FLOATS, "rest_of_native")),
    Target("gRPC / native, CPU of the front per request", 2.5, True, figure(FLOATS, "grpc_cpu_of_native")),
    Target("1 MB of floats as bytes over REST, MB/s each way", 400, False, figure(MB_FLOATS, "binary_mb_s")),
    Target("1 MB of floats over gRPC, MB/s each way", 400, False, figure(MB_FLOATS, "grpc_mb_s")),
    Target("await of a no-op alone, p50, ms", 0.15, True, figure(AWAIT_1, "p50_ms")),
    Target("awaits of a no-op per second, 64 at once", 60_000, False, figure(AWAIT_64, "rps")),
    # 0.8 of 60,000, and of what was measured: what is asked of `connect` can be read either way.
    Target("awaits through connect per second, 64 at once", 48_000, False, figure(AWAIT_64, "rps", "connect")),
    Target("the same through connect / in the program", 0.8, False, between(AWAIT_64, "rps", "connect", "jitney")),
    Target("64 awaits at once / a process pool", 15, False, between(AWAIT_BATCHES, "rps", "jitney", "pool")),
    Target("p99 of I/O beside a model / alone", 1.1, True, between(BESIDE, "io_p99_ms", "jitney", "none")),
    Target("p50 of a model beside I/O above its own, ms", 0.3, True, above_own),
]


def start(scenario: Scenario, server: str) -> Running:
    arguments = list(scenario.arguments) if server == "jitney" else []
    running = servers.start(server, scenario.model, arguments, dict(scenario.environment))
    bodies = {"raw": (b"x", RAW), "rows": (b"[0.5]", JSON), "chunks": (json.dumps(CHAT).encode(), JSON)}
    body, content_type = bodies.get(scenario.model, (BODY.encode(), JSON))
    running.wait_ready(body, content_type)
    return running
