"""`auto` against `eager` and a small grid of `fixed`, with real processes and a model that sleeps.

`python benchmarks/policies.py` runs every story with every policy, interleaved, prints medians of mean latency and
throughput next to those of the simulation (`crates/core/tests/batching/stories.rs`), and writes JSON to results/.
It takes `--minutes`; with fewer stories (`--only`) each is measured for longer.
"""

import argparse
import asyncio
import datetime
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import load
import servers
from summary import summary

# The model of every story: 20 ms + 1 ms per item, batches of 32 at most; a replica answers 615 a second at best.
BASE_S, ITEM_S, SIZE = 0.020, 0.001, 32
CAPACITY = SIZE / (BASE_S + ITEM_S * SIZE)
GRID = [(delay, size) for delay in (2, 5, 10) for size in (8, 32)]
START_S = 1.5
"""What it takes to start a server, roughly."""
SHORTEST_S = 2.0
TARGET_MS = 150

Story = Callable[[servers.Running, float], Awaitable[load.Outcome]]


def users(count: int) -> Story:
    async def run(running: servers.Running, seconds: float) -> load.Outcome:
        return await load.closed_loop(running.port, running.path, count, seconds)

    return run


def strangers(rate: float) -> Story:
    async def run(running: servers.Running, seconds: float) -> load.Outcome:
        return await load.open_loop(running.port, running.path, rate, seconds)

    return run


def bursts(rate: float, size: int) -> Story:
    """Clients that each send `size` requests at once, `rate` of them a second."""

    async def run(running: servers.Running, seconds: float) -> load.Outcome:
        outcome, generator, idle = load.Outcome(seconds=seconds), random.Random(1), list[load.Connection]()
        tasks: set[asyncio.Task[None]] = set()

        async def one() -> None:
            connection = idle.pop() if idle else load.Connection(running.port)
            sent = time.perf_counter()
            try:
                status, _ = await connection.post(running.path, b'{"text": "of a burst"}')
            except load.BROKEN:
                outcome.broken += 1
                return
            (outcome.answered_ms if status == 200 else outcome.refused_ms).append((time.perf_counter() - sent) * 1000)
            idle.append(connection)

        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            await asyncio.sleep(generator.expovariate(rate))
            for _ in range(size):
                tasks.add(task := asyncio.create_task(one()))
                task.add_done_callback(tasks.discard)
        await load.settle(tasks, outcome)
        for connection in idle:
            connection.close()
        return outcome

    return run


@dataclass(frozen=True)
class Case:
    """One story with the options that it needs."""

    name: str
    story: Story
    replicas: int = 1
    target_ms: float | None = None
    model: str = "sleepy"


CASES = [
    Case("1 user", users(1)),
    Case("8 users", users(8)),
    Case("24 users", users(24)),
    Case("strangers, load 0.3", strangers(0.3 * CAPACITY)),
    Case("strangers, load 0.6", strangers(0.6 * CAPACITY)),
    Case("bursts of 12, 5 a second", bursts(5, 12)),
    Case("strangers, load 0.4, 2 replicas", strangers(0.8 * CAPACITY), replicas=2),
    Case("strangers, load 0.3, 4 replicas", strangers(1.2 * CAPACITY), replicas=4),
    Case("24 users, 2 replicas", users(24), replicas=2),
    Case("4 groups, 16 users", users(16), model="grouped"),
    Case(f"target {TARGET_MS} ms, load 1.5", strangers(1.5 * CAPACITY), target_ms=TARGET_MS),
]


def options(case: Case, policy: str) -> list[str]:
    name = case.model
    chosen = [f"{name}.max_batch_size={SIZE}", f"{name}.replicas={case.replicas}"]
    if policy.startswith("fixed"):
        _, delay, size = policy.split("/")
        chosen = [f"{name}.max_batch_size={size}", f"{name}.max_batch_delay_ms={delay}", *chosen[1:]]
    elif policy != "auto":
        chosen.append(f"{name}.policy={policy}")
    if case.target_ms:
        chosen.append(f"{name}.latency_target_ms={case.target_ms}")
    return [part for option in chosen for part in ("--set", option)]


def simulated() -> dict[str, dict[str, dict[str, float]]]:
    """The same stories in virtual time; nothing where the tests cannot be built."""
    command = "cargo test --quiet -p jitney-core --test batching stories_of_the_benchmark -- --ignored --nocapture"
    try:
        ran = subprocess.run(command.split(), cwd=servers.HERE.parent, capture_output=True, text=True, check=False)
    except OSError:
        return {}
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for line in ran.stderr.splitlines():
        if line.startswith("story\t"):
            _, story, policy, mean_ms, rps, in_time = line.split("\t")
            row = {"mean_ms": float(mean_ms), "rps": float(rps), "in_time_rps": float(in_time)}
            figures.setdefault(story, {})[policy] = row
    return figures


def table(case: Case, measured: dict[str, dict[str, float]], expected: dict[str, dict[str, float]]) -> list[str]:
    """Rows of a table: each policy compared with `eager`, measured and simulated."""
    rows: list[str] = []
    what = "in_time_rps" if case.target_ms else "rps"
    for policy, found in measured.items():
        row = f"| {case.name} | {policy} | {found['mean_ms']:.1f} | {found[what]:.0f} |"
        for figures in (measured, expected):
            if policy in figures and figures.get("eager", {}).get(what):
                mean = figures[policy]["mean_ms"] / figures["eager"]["mean_ms"]
                row += f" {mean:.2f} | {figures[policy][what] / figures['eager'][what]:.2f} |"
            else:
                row += " | |"
        rows.append(row)
    return rows


def measure(case: Case, policy: str, seconds: float) -> dict[str, float]:
    environment = {"BENCH_BASE_S": str(BASE_S), "BENCH_ITEM_S": str(ITEM_S)}
    running = servers.start("jitney", case.model, options(case, policy), environment)
    try:
        running.wait_ready(b'{"text": "first"}', "application/json")
        asyncio.run(case.story(running, max(1.5, seconds / 3)))  # what is to be learned is learned
        outcome = asyncio.run(case.story(running, seconds))
    finally:
        running.stop()
    answered = outcome.answered_ms
    return {
        "mean_ms": statistics.fmean(answered) if answered else 0.0,
        "p95_ms": load.quantile(answered, 0.95),
        "rps": len(answered) / seconds,
        "in_time_rps": outcome.within(case.target_ms or 1e9),
        "refused": len(outcome.refused_ms),
        "wrong": outcome.wrong + outcome.broken,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=12, help="how long all of it may take")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--only", default="", help="stories whose name contains one of these, separated by commas")
    parser.add_argument("--grid", type=int, default=3, help="how many cells of `fixed`: 0 to 6")
    parser.add_argument("--no-simulation", action="store_true", help="only what is measured")
    arguments = parser.parse_args()
    expected = {} if arguments.no_simulation else simulated()
    grid = [f"fixed/{delay}/{size}" for delay, size in GRID[1::2] + GRID[::2]][: arguments.grid]
    policies = ("auto", "eager", *grid)
    wanted = [part.strip() for part in arguments.only.split(",")]
    cases = [case for case in CASES if any(part in case.name for part in wanted)]
    runs = len(cases) * len(policies) * arguments.repetitions
    if not runs:
        parser.error(f"no story is called {arguments.only!r}")
    # A third as much again goes to what is learned first.
    seconds = max(SHORTEST_S, (arguments.minutes * 60 / runs - START_S) / (1 + 1 / 3))
    print(f"{runs} runs of {seconds:.1f} s", file=sys.stderr, flush=True)
    figures: dict[str, dict[str, dict[str, float]]] = {}
    head = "| story | policy | mean ms | req/s | mean/eager | req/s/eager | simulated: mean/eager | req/s/eager |"
    print(head, "| --- | --- | --- | --- | --- | --- | --- | --- |", sep="\n", flush=True)
    for case in cases:
        samples: dict[str, list[dict[str, float]]] = {}
        for _ in range(arguments.repetitions):
            for policy in policies:
                samples.setdefault(policy, []).append(measure(case, policy, seconds))
        figures[case.name] = {policy: summary(runs) for policy, runs in samples.items()}
        print(*table(case, figures[case.name], expected.get(case.name, {})), sep="\n", flush=True)
    now = datetime.datetime.now(datetime.UTC)
    path = Path(__file__).parent / "results" / f"policies-{now:%Y-%m-%d-%H%M%S}.json"
    method = {"seconds": seconds, "repetitions": arguments.repetitions}
    path.write_text(json.dumps({"method": method, "medians": figures, "simulated": expected}, indent=1) + "\n")
    print(f"written to {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
