"""Runs Prometheus in a folder, and asks it. The tests and the picture of the dashboard use it."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

START_S = 30.0
Series = list[dict[str, Any]]
"""What a query returns: objects with `metric` (labels) and `value` or `values`."""


class QueryError(Exception):
    """Prometheus has refused a query, and says why."""


class Prometheus:
    """One that runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **parameters: object) -> Any:
        """Return what the API says."""
        url = f"{self.url}/api/v1/{path}?{urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(f"{parameters.get('query')}: {error.read().decode()}") from None

    def instant(self, query: str, at: float) -> Series:
        """Return what a query has at an instant."""
        return self.ask("query", query=query, time=at)["result"]

    def range(self, query: str, start: float, end: float, step: float = 1.0) -> Series:
        """Return what a query has over a time."""
        return self.ask("query_range", query=query, start=start, end=end, step=step)["result"]

    def value(self, query: str, at: float) -> float:
        """Return the one number that a query has, or 0 if it has none."""
        found = self.instant(query, at)
        assert len(found) < 2, f"{query} has {len(found)} values"
        return float(found[0]["value"][1]) if found else 0.0

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False

    def are_targets_up(self) -> bool:
        """Whether every target has been scraped."""
        targets = self.ask("targets")["activeTargets"]
        return bool(targets) and all(target["health"] == "up" for target in targets)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def configuration(targets: Mapping[str, int], rules: Path, interval: str) -> str:
    """Return a configuration that scrapes a port of this machine for each job. JSON is a part of YAML."""
    jobs = [{"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for job, port in targets.items()]
    times = {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval}
    return json.dumps({"global": times, "rule_files": [str(rules)], "scrape_configs": jobs})


@contextmanager
def running(folder: Path, targets: Mapping[str, int], rules: Path, interval: str = "1s") -> Generator[Prometheus]:
    """Run one that has scraped every target once."""
    program = shutil.which("prometheus")
    assert program, "prometheus is not installed: make monitoring-tools"
    (folder / "prometheus.yml").write_text(configuration(targets, rules, interval))
    port = free_port()
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    # Without a limit it uses all cores for queries, and the server is short of them.
    environment = {**os.environ, "GOMAXPROCS": "1"}
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )
    try:
        found = Prometheus(f"http://127.0.0.1:{port}")
        end = time.monotonic() + START_S
        while not (found.is_ready() and found.are_targets_up()):
            said = (folder / "prometheus.log").read_text()
            assert process.poll() is None, f"prometheus has ended with {process.returncode}:\n{said}"
            assert time.monotonic() < end, f"prometheus has not scraped {dict(targets)} within {START_S:.0f} s:\n{said}"
            time.sleep(0.05)
        yield found
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def filled_in(query: str, **values: str) -> str:
    """Replace the variables of a dashboard, as Grafana does; those that are not given stand for all."""
    known = {"__rate_interval": "10s", "job": ".*", "instance": ".*", "deployment": ".*", "slo": "0.1"} | values
    for name, value in known.items():
        query = query.replace(f"${name}", value)
    return query
