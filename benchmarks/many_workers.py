"""Many workers on one front, which join it by agents over TCP with TLS, all on this machine.

`light`: real workers of a model that sleeps. How soon they are ready, their memory, and requests per second.
`idle`: links of workers that do nothing but answer pings. What they cost the front.

`.venv/bin/python benchmarks/many_workers.py light idle` measures both. `idle` needs a release build of the example
`fake_worker` of `jitney-server`.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from jitney.config.layers import Overrides, resolve
from jitney.deployments.manifest import manifest
from jitney.deployments.targets import load_target
from load import closed_loop, quantile

HERE = Path(__file__).resolve().parent
FAKE_WORKER = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")) / "release/examples/fake_worker"
AGENTS = 4
WATCHED_S = 10
TICKS = os.sysconf("SC_CLK_TCK")
BATCH, BATCH_S = 8, 0.2
"""What a worker of `light` does: so many items take so long."""
LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
JOINS = re.compile(r"agents join at (tcp:\S+)")
READY = re.compile(r"ready after ([\d.]+) s")


class Front:
    """A server whose workers join it, and its agents."""

    def __init__(self, folder: Path, target: Path, python: str, workers: int, *more: str) -> None:
        secret = folder / "secret"
        secret.write_text("s" * 40)
        secret.chmod(0o600)
        self._log = folder / "front.log"
        command = ["serve", str(target), "--port", "0", "--local", "0", "--workers-listen", "tcp:127.0.0.1:0"]
        self.process = self._start([*command, "--workers-secret-file", str(secret), *more], sys.executable, self._log)
        address = self._wait(JOINS)
        places = -(-workers // AGENTS)
        join = ["worker", "--connect", address, "--secret-file", str(secret), "--places", str(places)]
        self._agents = [self._start(join, python, folder / f"agent-{number}.log") for number in range(AGENTS)]
        self.ready_s = float(self._wait(READY))
        self.port = int(self._wait(LISTENING))

    @staticmethod
    def _start(arguments: list[str], python: str, log: Path) -> "subprocess.Popen[bytes]":
        # The interpreter of workers is that of their agent.
        program = "import sys; sys.executable = sys.argv.pop(1); from jitney.cli.main import main; sys.exit(main())"
        environment = {**os.environ, "BENCH_BASE_S": str(BATCH_S), "BENCH_ITEM_S": "0", "OMP_NUM_THREADS": "1"}
        with log.open("wb") as output:
            command = [sys.executable, "-c", program, python, *arguments]
            return subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)

    def _wait(self, line: re.Pattern[str]) -> str:
        end = time.monotonic() + 300
        while not (found := line.search(self._log.read_text(errors="replace"))):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no line like {line.pattern!r} in the log:\n{self._log.read_text()[-2000:]}")
            time.sleep(0.05)
        return found.group(1)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def workers(self) -> list[int]:
        return [
            int(pid)
            for agent in self._agents
            for task in Path(f"/proc/{agent.pid}/task").glob("*/children")
            for pid in task.read_text().split()
        ]

    def agents_mb(self) -> float:
        return sum(memory_mb(agent.pid, "Rss") for agent in self._agents) / AGENTS

    def stop(self) -> None:
        for process in (self.process, *self._agents):
            process.terminate()
        for process in (self.process, *self._agents):
            process.wait(60)


@contextmanager
def front(target: Path | str, python: str, workers: int, *more: str) -> Generator[Front]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "idle.py" if isinstance(target, str) else target
        if isinstance(target, str):
            path.write_text(target)
        running = Front(Path(folder), path, python, workers, *more)
        try:
            yield running
        finally:
            running.stop()


def memory_mb(pid: int, what: str) -> float:
    """`Rss` is all memory of a process, `Pss` counts shared pages by the share of each process."""
    found = re.search(rf"^{what}:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found.group(1)) / 1024 if found else 0.0


def light(workers: int) -> dict[str, float]:
    options = (f"sleepy.replicas={workers}", f"sleepy.max_batch_size={BATCH}")
    more = [word for option in options for word in ("--set", option)]
    with front(HERE / "apps/sleepy.py:sleepy", sys.executable, workers, *more) as running:
        pids = running.workers()
        outcome = asyncio.run(closed_loop(running.port, "/sleepy", 2 * workers * BATCH, WATCHED_S))
        if outcome.wrong or outcome.broken:
            raise RuntimeError(f"{outcome.wrong} wrong answers, {outcome.broken} without an answer")
        return {
            "workers": len(pids),
            "ready_s": running.ready_s,
            "worker_rss_mb": sum(memory_mb(pid, "Rss") for pid in pids) / len(pids),
            "worker_pss_mb": sum(memory_mb(pid, "Pss") for pid in pids) / len(pids),
            "agent_rss_mb": running.agents_mb(),
            "front_rss_mb": memory_mb(running.process.pid, "Rss"),
            "requests_per_s": len(outcome.answered_ms) / outcome.seconds,
            "ceiling_per_s": workers * BATCH / BATCH_S,
            "p50_ms": quantile(outcome.answered_ms, 0.5),
        }


def idle(workers: int) -> dict[str, float]:
    if not FAKE_WORKER.exists():
        raise SystemExit("first: cargo build --release --locked -p jitney-server --example fake_worker")
    target = json.dumps({"manifest": manifest_of_sleepy(workers), "does": ["serve"]})
    with front(target, str(FAKE_WORKER), workers, "--set", f"sleepy.replicas={workers}") as running:
        pids = running.workers()
        begin, spent = time.monotonic(), running.cpu_s()
        time.sleep(WATCHED_S)
        cores = (running.cpu_s() - spent) / (time.monotonic() - begin)
        if len(pids) != workers or len(running.workers()) != workers:
            raise RuntimeError(f"{len(running.workers())} of {workers} workers are there")
        return {
            "links": len(pids),
            "ready_s": running.ready_s,
            "front_cores": cores,
            "front_rss_mb": memory_mb(running.process.pid, "Rss"),
        }


def manifest_of_sleepy(workers: int) -> dict[str, object]:
    """What a worker of `sleepy` says, with so many replicas."""
    target = f"{HERE / 'apps/sleepy.py'}:sleepy"
    (deployment,) = load_target(target)
    overrides = Overrides()
    resolved = resolve(deployment.name, {**deployment.declared, "replicas": workers}, overrides, deployment.init)
    return manifest(target, [(deployment, resolved)])


KINDS = {"light": (light, 64), "idle": (idle, 1000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--workers", type=int, help="how many workers (default: 64 for light, 1000 for idle)")
    given = parser.parse_args()
    for kind in given.kinds:
        measure, usual = KINDS[kind]
        figures = measure(given.workers or usual)
        print(kind, json.dumps({name: round(value, 3) for name, value in figures.items()}), flush=True)


if __name__ == "__main__":
    main()
