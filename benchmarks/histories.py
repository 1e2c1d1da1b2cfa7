"""Random load histories of the simulator, played against the real server: `auto` next to `eager`.

`python benchmarks/histories.py` plays five histories of `crates/core/tests/batching/histories.rs`, with the users,
items of a request, pauses and model of the simulation, next to a process that takes half of a core now and then. Each
history is played with both policies in turn. Printed are requests/s of `auto` / `eager`, and the share of batches
of one with each. Histories are scaled: their parts share `--seconds`, and a launch takes at least 2 ms, because a real
server needs tenths of a millisecond for each request.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import load
import servers

SIZE = 32
"""Largest batch, as in the simulation."""
LEAST_LAUNCH_S = 0.002
NUMBERS = "2,47,165,247,897"
"""Histories with a neighbour. In all but the first the policy was once slow, or took one item again and again."""


@dataclass(frozen=True)
class Part:
    """A stretch of the same load: users who each send a request of `rows` items `rtt_s` after each answer."""

    seconds: float
    users: int
    rows: int
    rtt_s: float


@dataclass(frozen=True)
class History:
    """One drawn history."""

    number: int
    launch_s: float
    item_s: float
    has_neighbour: bool
    parts: tuple[Part, ...]

    def scaled(self, seconds: float) -> "History":
        """The same with parts of `seconds` in all, and a launch that is longer than the server's own work."""
        length = sum(part.seconds for part in self.parts)
        slower = max(1.0, LEAST_LAUNCH_S / self.launch_s)
        parts = tuple(
            Part(part.seconds * seconds / length, part.users, part.rows, part.rtt_s * slower) for part in self.parts
        )
        return History(self.number, self.launch_s * slower, self.item_s * slower, self.has_neighbour, parts)


@dataclass
class Played:
    """Result of one history with one policy."""

    requests: int = 0
    """Requests that were answered."""
    wrong: int = 0
    """Requests that were refused, or whose answer is not theirs."""
    batches: int = 0
    ones: int = 0


def drawn() -> dict[int, History]:
    """All histories that the simulator draws, by number."""
    command = "cargo test --quiet -p jitney-core --test batching histories_of_the_benchmark -- --ignored --nocapture"
    ran = subprocess.run(command.split(), cwd=servers.HERE.parent, capture_output=True, text=True, check=False)
    lines = [line.split("\t") for line in ran.stderr.splitlines() if line.startswith("history\t")]
    if not lines:
        raise SystemExit(f"the simulator printed no histories:\n{ran.stderr[-2000:]}")
    return {history.number: history for history in map(read, lines)}


def read(fields: list[str]) -> History:
    """Read one line of the simulator."""
    _, number, launch_s, item_s, has_neighbour, *parts = fields
    split = [part.split(":") for part in parts]
    return History(
        int(number),
        float(launch_s),
        float(item_s),
        has_neighbour == "true",
        tuple(Part(float(seconds), int(users), int(rows), float(rtt)) for seconds, users, rows, rtt in split),
    )


def disturb(seed: int) -> None:
    """Take half of a core now and then, as the simulated neighbour does, until the process is ended."""
    generator = random.Random(seed)
    while True:
        time.sleep(generator.expovariate(1 / 0.3))
        until = time.perf_counter() + generator.expovariate(1 / 0.2)
        while time.perf_counter() < until:
            slice_s = generator.uniform(0.001, 0.004)
            end = time.perf_counter() + slice_s
            while time.perf_counter() < end:
                pass
            time.sleep(slice_s)


@contextmanager
def neighbour(history: History) -> Generator[None]:
    """Run the other process of a history that has one."""
    if not history.has_neighbour:
        yield
        return
    process = multiprocessing.Process(target=disturb, args=(history.number,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


async def play_parts(history: History, port: int, played: Played) -> None:
    """Play the parts one after the other. An answer that comes after the end of its part is counted too."""
    generator = random.Random(history.number)
    for number, part in enumerate(history.parts):
        end = time.perf_counter() + part.seconds

        async def user(name: str, part: Part = part, end: float = end) -> None:
            connection, count = load.Connection(port), 0
            while time.perf_counter() < end:
                count += 1
                items = [{"text": f"{name} request {count} item {row}"} for row in range(part.rows)]
                path, sent = ("/sleepy", items[0]) if part.rows == 1 else ("/sleepy/batch", items)
                status, answer = await connection.post(path, json.dumps(sent).encode())
                is_right = status == 200 and is_own(answer, items)
                played.requests += is_right
                played.wrong += not is_right
                await asyncio.sleep(part.rtt_s * generator.uniform(0.5, 1.5))
            connection.close()

        await asyncio.gather(*(user(f"part {number} user {user_number}") for user_number in range(part.users)))


def is_own(answer: bytes, items: list[dict[str, str]]) -> bool:
    """Whether these are the answers to these items."""
    found = json.loads(answer)
    return [found] == items if len(items) == 1 else [one.get("value") for one in found["outcomes"]] == items


def count_batches(port: int) -> tuple[int, int]:
    """Batches so far, and those of one item."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    total = re.search(r'^jitney_batch_items_count\{deployment="sleepy"\} (\d+)', text, re.MULTILINE)
    ones = re.search(r'^jitney_batch_items_bucket\{deployment="sleepy",le="1"\} (\d+)', text, re.MULTILINE)
    assert total and ones, "the server counts no batches"
    return int(total[1]), int(ones[1])


def play(history: History, policy: str) -> Played:
    """Start a server, and play a history against it."""
    environment = {"BENCH_BASE_S": str(history.launch_s), "BENCH_ITEM_S": str(history.item_s)}
    # The simulator refuses nothing.
    options = [
        f"sleepy.max_batch_size={SIZE}",
        "sleepy.max_queued_items=100000",
        *([] if policy == "auto" else [f"sleepy.policy={policy}"]),
    ]
    arguments = [part for option in options for part in ("--set", option)]
    played = Played()
    running = servers.start("jitney", "sleepy", arguments, environment)
    try:
        running.wait_ready(b'{"text": "first"}', "application/json")
        with neighbour(history):
            asyncio.run(play_parts(history, running.port, played))
        played.batches, played.ones = count_batches(running.port)
    finally:
        running.stop()
    return played


def compare(history: History, pairs: int) -> float:
    """Play both policies in turn, print a row, and return the median of the ratios."""
    ratios, shares = list[float](), dict[str, list[float]](auto=[], eager=[])
    wrong = 0
    for pair in range(pairs):
        played = {policy: play(history, policy) for policy in sorted(shares, reverse=pair % 2 == 1)}
        ratios.append(played["auto"].requests / played["eager"].requests)
        for policy, one in played.items():
            shares[policy].append(one.ones / one.batches)
            wrong += one.wrong
    loads = " ".join(f"{part.users}x{part.rows}" for part in history.parts)
    model = f"{history.launch_s * 1e3:.1f} ms + {history.item_s * 1e3:.3f} ms an item"
    median, spread = statistics.median(ratios), ", ".join(f"{ratio:.2f}" for ratio in ratios)
    ones = " | ".join(f"{statistics.median(shares[policy]):.3f}" for policy in ("auto", "eager"))
    print(f"| {history.number} | {model} | {loads} | {median:.2f} ({spread}) | {ones} | {wrong} |", flush=True)
    return median


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", default=NUMBERS, help=f"histories, separated by commas; default: {NUMBERS}")
    parser.add_argument("--seconds", type=float, default=12, help="length of a history; default: 12")
    parser.add_argument("--pairs", type=int, default=2, help="runs of each policy; default: 2")
    arguments = parser.parse_args()
    histories = drawn()
    print(f"load average before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", file=sys.stderr)
    print("| history | model | users x items of a request | req/s, auto / eager | ones, auto | ones, eager | wrong |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    numbers = [int(number) for number in arguments.numbers.split(",")]
    ratios = [compare(histories[number].scaled(arguments.seconds), arguments.pairs) for number in numbers]
    print(f"geometric mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.3f}")
    print(f"load average after: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
