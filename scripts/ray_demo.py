"""Two Ray nodes on this machine, a model on both, called over HTTP and from FastAPI; one node is killed under load.

`make ray-demo` runs it. Each line of the table is one second: who answered, and what was lost.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "on_ray"
QUIET = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "120"}
BEFORE_S, LONGEST_S, AFTER_S = 4, 60, 4
PATIENCE_S = 120


def main() -> int:
    """Run the demo; returns 1 if a request was lost."""
    os.environ.update(QUIET)
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - only here: importing Ray takes seconds

    small: dict[str, Any] = {"object_store_memory": 80_000_000}
    say("starting a Ray cluster: a head without cores, and two nodes of 4 cores each")
    cluster = Cluster(initialize_head=True, head_node_args={**small, "num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=4, env_vars={"MACHINE": f"node {number}"}, **small) for number in (1, 2)]
    with tempfile.TemporaryFile("w+") as log:
        fronts = Fronts(cluster.address, log)
        try:
            return show(fronts, lambda: cluster.remove_node(nodes[1], allow_graceful=False))
        finally:
            say("ending both fronts: their replicas in the cluster end with them")
            fronts.end()
            say(f"actors of jitney that are left in the cluster: {actors_left(cluster.address)}")
            cluster.shutdown()


def show(fronts: "Fronts", kill_node: Callable[[], None]) -> int:
    """Ask both fronts all the time, kill a node, and print what is seen."""
    fronts.wait_ready()
    clients = [Clients("HTTP", fronts.over_http, 8), Clients("FastAPI", fronts.from_fastapi, 8)]
    header = "   ".join(f"{f'{one.name}: node 1':>16} {'node 2':>8} {'lost':>5}" for one in clients)
    say("8 clients ask each front; answers per second:")
    print(f"  second   {header}", flush=True)
    second, killed_at, whole_at, has_missed = 0, 0, 0, False
    while second < BEFORE_S + LONGEST_S and not (whole_at and second >= whole_at + AFTER_S):
        if second == BEFORE_S:
            say("node 2 is killed, with a replica of each front and the batches that they compute")
            kill_node()
            killed_at = second
        time.sleep(1)
        second += 1
        seen = [one.take() for one in clients]
        columns = (f"{count['node 1']:>16} {count['node 2']:>8} {count['lost']:>5}" for count in seen)
        print(f"  {second:>6}   {'   '.join(columns)}", flush=True)
        is_whole = fronts.is_whole()
        has_missed |= bool(killed_at) and not is_whole
        if has_missed and not whole_at and is_whole:
            whole_at = second
            say(f"`jitney serve` has two replicas again, {second - killed_at} s later")
    totals = [one.stop() for one in clients]
    asked, lost = sum(sum(total.values()) for total in totals), sum(total["lost"] for total in totals)
    say(f"{asked} requests, each answer checked against its question: {lost} lost")
    return 1 if lost else 0


class Fronts:
    """`jitney serve` and a FastAPI application, each with two replicas in the cluster."""

    def __init__(self, cluster: str, log: IO[str]) -> None:
        self._log = log
        python = [sys.executable, "-m"]
        serve = [*python, "jitney", "serve", str(EXAMPLE / "model.py"), "--port", "0", "--ray-address", cluster]
        uvicorn = [*python, "uvicorn", "--app-dir", str(EXAMPLE), "--port", "0", "app:app"]
        say(f"starting `jitney serve model.py --ray-address {cluster}` and `uvicorn app:app` with the same model")
        environment = {**os.environ, "RAY_CLUSTER": cluster}
        self._processes = [
            subprocess.Popen(command, cwd=EXAMPLE, env=environment, stdout=log, stderr=log)
            for command in (serve, uvicorn)
        ]
        self._ports: list[str] = []

    def wait_ready(self) -> None:
        """Wait until both answer."""
        patterns = (r"listening on http://127\.0\.0\.1:(\d+)", r"Uvicorn running on http://127\.0\.0\.1:(\d+)")
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            text = self._text()
            found = [re.search(pattern, text) for pattern in patterns]
            self._ports = [one.group(1) for one in found if one]
            if len(self._ports) == len(patterns) and self._is_ready():
                return
            time.sleep(0.1)
        raise SystemExit(f"the fronts were not ready within {PATIENCE_S} s; their log:\n{self._text()}")

    def is_whole(self) -> bool:
        """Whether the server over HTTP has all its replicas."""
        metrics = fetch(f"http://127.0.0.1:{self._ports[0]}/metrics").decode()
        return 'jitney_ready_replicas{deployment="words"} 2' in metrics

    def over_http(self, text: str) -> dict[str, Any]:
        """Ask `jitney serve`."""
        head = {"content-type": "application/json"}
        url = f"http://127.0.0.1:{self._ports[0]}/words"
        return json.loads(fetch(urllib.request.Request(url, json.dumps(text).encode(), head)))

    def from_fastapi(self, text: str) -> dict[str, Any]:
        """Ask the FastAPI application."""
        return json.loads(fetch(f"http://127.0.0.1:{self._ports[1]}/count?{urllib.parse.urlencode({'text': text})}"))

    def end(self) -> None:
        """End both in order."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _is_ready(self) -> bool:
        try:
            return bool(fetch(f"http://127.0.0.1:{self._ports[0]}/readyz"))
        except OSError:
            return False

    def _text(self) -> str:
        for process in self._processes:
            if process.poll() is not None:
                self._log.seek(0)
                raise SystemExit(f"a front ended with exit code {process.returncode}; the log:\n{self._log.read()}")
        self._log.flush()
        with open(f"/proc/self/fd/{self._log.fileno()}") as copy:
            return copy.read()


class Clients:
    """Threads that ask one front all the time, and check each answer."""

    def __init__(self, name: str, ask: Callable[[str], dict[str, Any]], count: int) -> None:
        self.name = name
        self._ask = ask
        self._lock = threading.Lock()
        self._seen: Counter[str] = Counter()
        self._total: Counter[str] = Counter()
        self._is_over = False
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def take(self) -> "Counter[str]":
        """Return what was seen since the last time."""
        with self._lock:
            seen, self._seen = self._seen, Counter()
            self._total += seen
            return seen

    def stop(self) -> "Counter[str]":
        """Stop; returns all that was seen."""
        self._is_over = True
        for thread in self._threads:
            thread.join()
        self.take()
        return self._total

    def _run(self, number: int) -> None:
        count = 0
        while not self._is_over:
            count += 1
            text = f"client {number} question {count}"
            try:
                answer = self._ask(text)
                where = str(answer["machine"]) if (answer["text"], answer["words"]) == (text, 4) else "lost"
            except (OSError, ValueError):
                where = "lost"
            with self._lock:
                self._seen[where] += 1


def actors_left(cluster: str) -> int:
    """Count the actors of jitney in the cluster."""
    import ray  # noqa: PLC0415

    ray.init(cluster, logging_level="ERROR", log_to_driver=False)
    listed: list[dict[str, str]] = ray.util.list_named_actors(all_namespaces=True)
    ray.shutdown()
    return sum(actor["namespace"] == "jitney" for actor in listed)


def fetch(request: "str | urllib.request.Request") -> bytes:
    """Return the body of a good answer; OSError for any other."""
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


def say(line: str) -> None:
    """Print a line that stands out from the table."""
    print(f"· {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
