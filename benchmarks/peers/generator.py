"""What loads the servers. One generator drives all servers of a run."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from peers.catalog import HERE, RAW, Request

Figures = dict[str, float | None]


@dataclass(frozen=True)
class Offer:
    """Requests to one address, sent in turn."""

    port: int
    requests: list[Request]
    is_streamed: bool = False
    """Whether answers come in parts."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.requests[0].path}"

    def write(self, folder: str) -> Path:
        """One body as a file, several as lines of JSON."""
        first = self.requests[0]
        path = Path(folder) / ("body.bin" if first.content_type == RAW else "bodies.jsonl")
        path.write_bytes(first.body if first.content_type == RAW else b"".join(r.body + b"\n" for r in self.requests))
        return path


class Generator(Protocol):
    """A program that sends requests and measures the answers."""

    name: str
    version: str

    def closed(self, offer: Offer, users: int, seconds: float) -> Figures:
        """Users that each ask again as soon as they are answered."""
        ...

    @property
    def open(self) -> Callable[[Offer, float, float], Figures] | None:
        """Requests that come at random instants, so many a second for so many seconds, whatever the answers do."""
        ...


class Wrk:
    """wrk, as an independent generator; closed loops only."""

    name, open = "wrk", None

    def __init__(self) -> None:
        said = subprocess.run(["wrk", "-v"], capture_output=True, text=True, check=False).stdout
        self.version = said.split(" Copyright")[0].removeprefix("wrk ").strip()

    def closed(self, offer: Offer, users: int, seconds: float) -> Figures:
        first = offer.requests[0]
        if offer.is_streamed:
            raise RuntimeError("wrk counts no parts; leave GENERATOR=wrk away")
        with tempfile.TemporaryDirectory() as folder:
            command = [
                "wrk", "--threads", "1", "--connections", str(users), "--duration", f"{max(1, round(seconds))}s",
                "--timeout", "30s", "--latency", "--script", str(HERE / "wrk.lua"), offer.url, "--",
                str(offer.write(folder)), first.content_type, *first.headers,
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.strip().splitlines()[-1])
        answered = found["requests"] - found["refused"]
        percentiles = {name: found[name] for name in ("p50_ms", "p95_ms", "p99_ms")}
        counts = {"answered": answered, "refused": found["refused"], "broken": found["broken"]}
        return {"rps": answered / found["duration_s"], **percentiles, **counts, "offered_rps": None}


class JitneyBench:
    """`jitney bench`, the project's own."""

    name = "jitney bench"

    def __init__(self) -> None:
        self.version = version("jitney")

    def closed(self, offer: Offer, users: int, seconds: float) -> Figures:
        return self._run(offer, seconds, ["--users", str(users)]) | {"offered_rps": None}

    def open(self, offer: Offer, rate: float, seconds: float) -> Figures:
        return self._run(offer, seconds, ["--rate", f"{rate:.3f}", "--arrivals", "poisson"]) | {"offered_rps": rate}

    def _run(self, offer: Offer, seconds: float, load: list[str]) -> Figures:
        first = offer.requests[0]
        headers = [part for line in first.headers for part in ("--header", line)]
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            command = [
                sys.executable, "-m", "jitney", "bench", offer.url, *load, "--duration", str(seconds),
                "--warmup", "0.3", "--timeout", "60" if offer.is_streamed else "10",
                "--input", str(offer.write(folder)), "--json", str(report),
                "--content-type", first.content_type, *headers, *(["--stream"] if offer.is_streamed else []),
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if not report.exists():
                raise RuntimeError(f"jitney bench: {(done.stderr or done.stdout).strip()[-500:]}")
            return read(json.loads(report.read_text()))


def read(document: dict[str, object]) -> Figures:
    """The figures of a document of `jitney bench` (docs/design/0011-load-generator.md)."""
    (run,) = document["runs"]  # pyright: ignore[reportGeneralTypeIssues]
    latency, parts = run["latency_ms"] or {}, run["parts"]
    of_parts = {
        "parts_s": parts["rate_per_s"],
        "first_p50_ms": (parts["first_ms"] or {}).get("p50"),
        "gap_p99_ms": (parts["gap_ms"] or {}).get("p99"),
    } if parts else {}  # fmt: skip
    return {
        **of_parts,
        "rps": run["rate_per_s"],
        "p50_ms": latency.get("p50"),
        "p95_ms": latency.get("p95"),
        "p99_ms": latency.get("p99"),
        "answered": run["requests"]["answered"],
        "refused": run["requests"]["refused"],
        "broken": run["requests"]["failed"],
        "is_generator_limit": float(bool(run["client"]["is_limit"])),
    }


def named(name: str) -> Generator:
    if name == "wrk":
        if not shutil.which("wrk"):
            raise SystemExit("GENERATOR=wrk: wrk is not on PATH (the package wrk)")
        return Wrk()
    return JitneyBench()
