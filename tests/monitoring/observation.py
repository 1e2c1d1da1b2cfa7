"""A real server under load that a real Prometheus scrapes, and what the clients saw of it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporters import exporters
from harness import APPS, Reply, Server, until
from monitoring.prometheus import Prometheus, running
from monitoring.queries import MODEL

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
RULES = ROOT / "deploy/prometheus/jitney.rules.yml"
IDLE_SCRAPES = 6
LOAD_S = 18
TICK_S = 0.05
RATE = 420
FIRST_REQUESTS = RATE
"""Requests per second for a model that can answer about 350."""
TEXTS = ["a", "some words", "a text that is longer than the others, so that batches are padded to it"]
Counts = Counter[tuple[str, str]]
"""Requests by deployment and outcome."""


@dataclass
class Seen:
    """What was measured, by whom, and when."""

    server: Server
    prometheus: Prometheus
    begin: float
    """The first instant at which Prometheus had scraped all; the server was idle until `loaded`."""
    loaded: float = 0.0
    killed: float = 0.0
    done: float = 0.0
    bench: dict[str, Any] = field(default_factory=dict[str, Any])
    """The one run of `jitney bench`."""
    counts: Counts = field(default_factory=Counts)
    """What all clients counted."""
    predict_s: float = 0.0
    """The mean time of a batch in the model, as the server says."""
    stall_s: float = 0.0
    """The longest time by which a short sleep was too long during the load: the machine did not run this process."""

    def ended(self, start: float, end: float) -> float:
        """Requests of the load generator that ended between two instants; it counts them in intervals."""
        intervals = [
            (one["from_s"], one["to_s"], one["answered"] + one["refused"] + one["failed"])
            for one in self.bench["series"]
        ]
        begin, left = self.loaded, float(FIRST_REQUESTS)
        for start_s, end_s, count in intervals:  # when it began, as `loaded` is when so many had ended
            begin = self.loaded - start_s - (end_s - start_s) * min(1.0, left / max(1, count))
            left -= count
            if left <= 0:
                break
        total = 0.0
        for start_s, end_s, count in intervals:
            overlap = min(end - begin, end_s) - max(start - begin, start_s)
            total += count * max(0.0, min(1.0, overlap / (end_s - start_s)))
        return total

    @property
    def window(self) -> str:
        """The time of the load, as a range of a query that is evaluated at `done`."""
        return f"{self.done - self.loaded:.0f}s"


def outcome(reply: Reply) -> str:
    return "ok" if reply.status == 200 else reply.reason


def wrong_requests(seen: Seen) -> None:
    """Send what clients send wrongly, items that fail in the model, and a path that does not exist."""
    with seen.server.client() as client:
        for number in range(6):
            broken = client.request("POST", "/plain", b"{", {"content-type": "application/json"})
            seen.counts["plain", outcome(broken)] += 1
            seen.counts["plain", outcome(client.post("/plain", f"raise {number}"))] += 1
            seen.counts["plain", outcome(client.post("/plain", {"not": "a text"}))] += 1
            seen.counts["(unknown)", outcome(client.post("/nowhere", "a"))] += 1
            seen.counts["writer", outcome(client.post("/writer", "a whole answer"))] += 1


def streams(seen: Seen) -> None:
    """Read answers in parts to the end, and leave others after the first part."""
    for number in range(24):
        connection = http.client.HTTPConnection("127.0.0.1", seen.server.port, timeout=60)
        is_leaving = number % 3 == 2
        text = "x" * (4000 if is_leaving else 40)
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        connection.request("POST", "/writer", json.dumps(text), headers)
        answer = connection.getresponse()
        assert answer.status == 200
        if is_leaving:
            answer.readline()
            # Both hold the socket.
            answer.close()
            connection.close()
        else:
            assert b"event: error" not in answer.read()
        connection.close()
        seen.counts["writer", "cancelled" if is_leaving else "ok"] += 1


@contextmanager
def watching_for_stalls(seen: Seen) -> Generator[None]:
    """Notice when this machine does not run what is ready to run."""
    ended = threading.Event()

    def watch() -> None:
        last = time.monotonic()
        while not ended.wait(TICK_S):
            now = time.monotonic()
            seen.stall_s = max(seen.stall_s, now - last - TICK_S)
            last = now

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def bench(seen: Seen, folder: Path) -> Generator[None]:
    """Run `jitney bench` meanwhile, and read what it has measured."""
    (folder / "items.jsonl").write_text("".join(json.dumps(text) + "\n" for text in TEXTS))
    command = [sys.executable, "-m", "jitney", "bench", f"http://127.0.0.1:{seen.server.port}/plain"]
    command += ["--rate", str(RATE), "--arrivals", "constant", "--duration", str(LOAD_S), "--warmup", "0"]
    command += ["--input", str(folder / "items.jsonl"), "--json", str(folder / "bench.json"), "--max-error-share", "1"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.wait()
    (seen.bench,) = json.loads((folder / "bench.json").read_text())["runs"]
    # It sends its first input once before the load.
    seen.counts["plain", "ok"] += 1
    for row in seen.bench["outcomes"]:
        seen.counts["plain", row["reason"]] += row["requests"]


def loaded(seen: Seen, folder: Path) -> None:
    """Put load on the server: overload, wrong items, clients that leave, and a worker that is killed."""
    with watching_for_stalls(seen), bench(seen, folder):
        until(
            lambda: seen.server.metric("jitney_requests_total", deployment="plain") >= FIRST_REQUESTS,
            "the load has begun",
        )
        seen.loaded = time.time()
        others = [seen.server.submit_call(lambda: wrong_requests(seen)), seen.server.submit_call(lambda: streams(seen))]
        until(lambda: seen.server.metric("jitney_requests_total", deployment="plain") > 5 * RATE, "half of the load")
        seen.killed = time.time()
        os.kill(process_of(seen.server), signal.SIGKILL)
        for other in others:
            other.result(60)
    seen.done = time.time()
    seconds, count = (seen.server.metric(f"{MODEL}_{part}", deployment="plain") for part in ("sum", "count"))
    seen.predict_s = seconds / count


def process_of(server: Server) -> int:
    """The worker of a replica, which its model has written."""
    found = re.search(r"plain/0 \| pid (\d+)", server.stdout())
    assert found, server.stdout()
    return int(found[1])


def pretended_gpus(folder: Path) -> dict[str, str]:
    """Build the NVML of the end-to-end tests, and return what lets the server find it."""
    (folder / "nvml").mkdir()
    made = folder / "nvml/libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, ROOT / "tests/e2e/fake_nvml.c"], check=True)
    (folder / "processes").touch()
    return {"LD_LIBRARY_PATH": str(made.parent), "FAKE_NVML_PROCESSES": str(folder / "processes")}


@contextmanager
def observed(folder: Path) -> Generator[Seen]:
    """Run all of it once. Prometheus and the server are there until the end of the tests."""
    (folder / "served").mkdir()
    environment = {"PYTHONPATH": os.pathsep.join([str(HERE / "apps"), str(APPS)]), **pretended_gpus(folder)}
    server = Server(folder / "served", [str(HERE / "apps/observed.py")], ("--set", "plain.devices=cuda:0"), environment)
    try:
        server.wait_ready()
        Path(environment["FAKE_NVML_PROCESSES"]).write_text(f"{process_of(server)} 300\n")
        with exporters() as ports, running(folder, {"jitney": server.port, **ports}, RULES) as prometheus:
            seen = Seen(server, prometheus, time.time())
            scrapes = 'count_over_time(up{job="jitney"}[1m])'
            until(lambda: prometheus.value(scrapes, time.time()) >= IDLE_SCRAPES, "it is scraped while it is idle")
            loaded(seen, folder)
            total = server.metric("jitney_requests_total")
            until(lambda: prometheus.value("sum(jitney_requests_total)", time.time()) == total, "the last scrape")
            yield seen
    finally:
        server.finish()
