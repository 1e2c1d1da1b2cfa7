"""What `make bench` measures of answers that come in parts: the cost of a part, and what steps gain."""

import http.client
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import leaving
from scenarios import CHAT, Figures, Measure, Scenario, Settings, Target, between, figure, of_program, ratio
from servers import Running

STEP_S, ITEM_S, USERS = 0.008, 0.0002, 64
"""As `apps/streams.py` has them."""
NOOP = [{"text": "abcd", "parts": 64}]
LONGER = 4
"""A stream of the sleeping model takes more than a second, so it is measured for so many times as long."""


def lengths(count: int, seed: int = 1) -> list[int]:
    """How many parts answers have, as those of a chat: most are short, and a few are very long."""
    draw = random.Random(seed)
    return [min(500, max(10, round(draw.lognormvariate(4.1, 0.7)))) for _ in range(count)]


CHATTY = [{"text": "abcd", "parts": parts} for parts in lengths(256)]


def streams(url: str, users: int, seconds: float, items: list[Any], *options: str) -> dict[str, Any]:
    """The run of `jitney bench --stream` with these users. What it sends first is sent by all measured servers."""
    with tempfile.TemporaryDirectory() as folder:
        given, report = Path(folder) / "items.jsonl", Path(folder) / "report.json"
        given.write_text("".join(json.dumps(item) + "\n" for item in items))
        command = [
            sys.executable, "-m", "jitney", "bench", url, "--stream", "--users", str(users), "--input", str(given),
            "--duration", str(seconds), "--warmup", "0", "--json", str(report), *options,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not report.exists():
            raise RuntimeError(f"jitney bench: {(done.stderr or done.stdout).strip()[-1000:]}")
        (run,) = json.loads(report.read_text())["runs"]
    return run


def figures_of(run: dict[str, Any]) -> dict[str, float]:
    parts, answered = run["parts"], run["requests"]["answered"]
    assert parts and answered, run["outcomes"]
    return {
        "parts_s": parts["rate_per_s"],
        "streams_s": run["rate_per_s"],
        "first_p50_ms": parts["first_ms"]["p50"],
        "gap_p50_ms": parts["gap_ms"]["p50"],
        "gap_p99_ms": parts["gap_ms"]["p99"],
        "stream_mean_ms": run["latency_ms"]["mean"],
        "broken": run["requests"]["due"] - answered,
        "client_cpu": run["client"]["cpu"],
    }


def noop(users: int, items: list[Any]) -> Measure:
    def measure(running: Running, settings: Settings) -> dict[str, float]:
        cpu = running.front_cpu_s()
        run = streams(running.url, users, settings.seconds, items)
        part_cpu_us = (running.front_cpu_s() - cpu) / max(run["parts"]["count"], 1) * 1e6
        return figures_of(run) | {"part_cpu_us": part_cpu_us}

    return measure


def sleepy(running: Running, settings: Settings) -> dict[str, float]:
    ceiling = offline_parts_s()
    figures = figures_of(streams(running.url, USERS, settings.seconds * LONGER, CHATTY))
    return figures | {"ceiling_parts_s": ceiling, "of_ceiling": figures["parts_s"] / ceiling}


def half_leave(running: Running, settings: Settings) -> dict[str, float]:
    return leaving.figures(running, CHATTY, settings.seconds * LONGER)


def offline_parts_s() -> float:
    """How many parts a second the model makes without a server, all places taken: it sleeps longer than requested."""
    began, steps = time.perf_counter(), 50
    for _ in range(steps):
        time.sleep(STEP_S + ITEM_S * USERS)
    return USERS * steps / (time.perf_counter() - began)


def to_the_socket(running: Running, settings: Settings) -> dict[str, float]:
    """From the instant that a part names, at which `step` returned, until this process has read the part."""
    took = sorted(delays_ms(running, settings.seconds))
    return {"socket_p50_ms": took[len(took) // 2], "socket_p99_ms": took[len(took) * 99 // 100]}


def delays_ms(running: Running, seconds: float) -> Iterator[float]:
    end = time.monotonic() + seconds
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=10)
    while time.monotonic() < end:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        connection.request("POST", running.path, json.dumps({"parts": 200}), headers)
        answer = connection.getresponse()
        while line := answer.readline():
            now = time.monotonic_ns()
            if line.startswith(b'data: "'):
                yield (now - int(line[7:-2])) / 1e6
    connection.close()


NOOP_64, NOOP_1, SOCKET = "parts: no-op, 64 streams", "parts: no-op, 1 stream", "parts: from a step to the socket"
STEPS, BATCHES = "parts: 8 ms + 0.2 ms per item, in steps", "parts: 8 ms + 0.2 ms per item, in batches"
LEAVING = "parts: 8 ms + 0.2 ms per item, half of the clients leave"
CHUNKS_64 = "parts: no-op, 64 streams, OpenAI chat"
SMOLLM2 = "parts: SmolLM2, 8 users"

SCENARIOS = [
    Scenario(NOOP_64, "parts", noop(64, NOOP), ("jitney", "hyper"), needs=None),
    Scenario(NOOP_1, "parts", noop(1, NOOP), ("jitney", "hyper"), needs=None),
    Scenario(CHUNKS_64, "chunks", noop(64, [CHAT]), ("jitney", "hyper"), needs=None),
    Scenario(SOCKET, "stamps", to_the_socket, ("jitney",), needs=None),
    Scenario(STEPS, "steps", sleepy, ("jitney",), needs=None),
    Scenario(BATCHES, "batches", sleepy, ("jitney",), needs=None),
    Scenario(LEAVING, "steps", half_leave, ("jitney",), needs=None),
    of_program(SMOLLM2, "smollm2", "engine", "jitney"),
]


def mean_of_batches(figures: Figures) -> float | None:
    ours, theirs = (figure(name, "stream_mean_ms")(figures) for name in (STEPS, BATCHES))
    return ours / theirs if ours and theirs else None


TARGETS = [
    Target("parts/s, 64 streams", 100_000, False, figure(NOOP_64, "parts_s")),
    Target("CPU of the front per part at 64 streams / bare hyper", 2, True, ratio(NOOP_64, "part_cpu_us", "hyper")),
    Target("CPU of the front per chunk of a chat, 64 streams, µs", 8, True, figure(CHUNKS_64, "part_cpu_us")),
    Target("CPU of the front per chunk of a chat / bare hyper", 2, True, ratio(CHUNKS_64, "part_cpu_us", "hyper")),
    Target("parts/s, 1 stream", 10_000, False, figure(NOOP_1, "parts_s")),
    Target("from a step to the client's socket, p50, ms", 0.15, True, figure(SOCKET, "socket_p50_ms")),
    Target("steps of a sleeping model, of the ceiling", 0.98, False, figure(STEPS, "of_ceiling")),
    Target("mean time of a stream, in steps / in batches", 0.5, True, mean_of_batches),
    Target("steps of items / begun before their clients left", 1.01, True, figure(LEAVING, "of_wanted")),
    Target(
        "tokens/s of SmolLM2 / its engine alone, 8 users", 0.97, False, between(SMOLLM2, "tokens_s", "jitney", "engine")
    ),
]
