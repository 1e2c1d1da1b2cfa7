"""The document of a measurement: what it says, and how it is read back. Its fields: docs/design/0011."""

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from jitney.context import available_cores
from jitney.errors import ConfigError

from jitney_bench.options import Run
from jitney_bench.requests.protocols import Requests

FORMAT = "jitney-bench"
VERSION = 1
EXPECTED = "expected a file that jitney bench --json FILE has written"
SUMMARY = {"rate_per_s": ("rate_per_s",), **{f"{p}_ms": ("latency_ms", p) for p in ("p50", "p95", "p99")}}
"""Figures of the summary → where they are in a run."""
PARTS = {
    "parts_per_s": ("parts", "rate_per_s"),
    **{f"{what}_{p}_ms": ("parts", f"{what}_ms", p) for what in ("first", "gap") for p in ("p50", "p99")},
}
"""Further figures of answers in parts."""


def plan(about: Mapping[str, Any], requests: Requests, source: str, run: Run, repeat: int) -> dict[str, Any]:
    """Write down all that is needed to do it again, but for the values of headers: one of them may be a key."""
    sizes = sorted(len(body) for _, body in requests.bodies)
    inputs = {
        "source": source,
        "count": len(sizes),
        "content_types": sorted({content_type for content_type, _ in requests.bodies}),
        "bytes_min": sizes[0],
        "bytes_median": int(statistics.median(sizes)),
        "bytes_max": sizes[-1],
    }
    return {
        **about,
        "items_per_request": requests.items_per_request,
        "stream": requests.stream,
        "inputs": inputs,
        **run.to_dict(),
        "repeat": repeat,
    }


def document(kind: str, plan: Mapping[str, Any], server: str | None) -> dict[str, Any]:
    """Begin a document of this kind."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "created": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "plan": dict(plan),
        "versions": {"jitney": metadata.version("jitney"), "python": platform.python_version(), "server": server},
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """Say where this ran."""
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return {
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _cpu(),
        "cores": available_cores(),
        "memory_mb": memory_mb,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the medians over the runs; None where no run has the figure."""
    figures = SUMMARY | (PARTS if any(run["parts"] for run in runs) else {})
    return {name: _median([figure(run, path) for run in runs]) for name, path in figures.items()}


def figure(run: Mapping[str, Any], path: Sequence[str]) -> float | None:
    """Return the figure at a path of keys; None where it is not there."""
    value: Any = run
    for key in path:
        value = None if value is None else value.get(key)
    return value


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def check_writable(path: str) -> None:
    """Refuse a place at which nothing can be written, before anything is measured for it."""
    place = Path(path)
    if place.is_dir() or not os.access(place if place.exists() else place.parent, os.W_OK):
        raise ConfigError(f"{path} cannot be written; name a file in a folder that is there")


def write(path: str, document: Mapping[str, Any]) -> None:
    """Write a document."""
    Path(path).write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")


def read(path: str) -> dict[str, Any]:
    """Read one; ConfigError says what is wrong with it."""
    try:
        found = json.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON ({error}); {EXPECTED}") from None
    if not isinstance(found, dict) or cast("dict[str, Any]", found).get("format") != FORMAT:
        raise ConfigError(f"{path} is JSON, but no measurement; {EXPECTED}")
    document = cast("dict[str, Any]", found)
    if document["version"] != VERSION:
        raise ConfigError(f"{path} is of version {document['version']}, and this program reads {VERSION}")
    return document
