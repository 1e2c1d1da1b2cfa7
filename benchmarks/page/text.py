"""Figures, tables and lines that all parts of the page have in common."""

import math
from typing import Any

from page.age import age
from page.compare import Spread
from page.results import Found

COLUMNS = {
    "rps": "requests/s",
    "p50_ms": "p50, ms",
    "p95_ms": "p95, ms",
    "p99_ms": "p99, ms",
    "parts_s": "parts/s",
    "first_p50_ms": "p50 of the first part, ms",
    "gap_p99_ms": "p99 of the gaps, ms",
    "memory_mb": "memory, MB",
    "offered_rps": "offered, requests/s",
}


def number(value: float) -> str:
    """Three digits, as much as such a measurement is worth."""
    if math.isinf(value):
        return "∞"
    if abs(value) >= 1000:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(found: Spread) -> str:
    """The median, with the spread where it says something."""
    text, low, high = number(found.median), number(found.low), number(found.high)
    return text if low == high else f"{text} ({low} to {high})"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return ["| " + " | ".join(cells) + " |" for cells in (header, rule, *rows)]


def machine(document: dict[str, Any]) -> str:
    found = document["machine"]
    return f"{found['cores']} cores of {found['cpu']}, {found['memory_gb']} GB, Linux {found['kernel']}"


def commit(document: dict[str, Any]) -> str:
    """The commit of jitney that a run measured; its version where the file names no commit."""
    found = document["versions"]
    return f"commit {found['commit']}" if "commit" in found else f"jitney {found.get('jitney', 'of unknown version')}"


def versions(document: dict[str, Any]) -> str:
    """The versions of everything else."""
    found = document["versions"].items()
    return ", ".join(f"{name} {version}" for name, version in found if version != "none" and name != "commit")


def run_of(run: Found | None) -> str:
    """When a figure was measured, of which commit, and how often."""
    if run is None:
        return ""
    method = run.document["method"]
    date = run.document["date"][:16].replace("T", " ")
    return (
        f"[{date}](results/{run.name}), {commit(run.document)}{age(run.document)}, "
        f"{method['repetitions']} repetitions of {method['seconds']:g} s"
    )


def targets_table(rows: list[dict[str, Any]], repetitions: int | None = None) -> list[str]:
    cells = [[row["target"], row["bound"], measured(row), verdict_of(row, repetitions)] for row in rows]
    return table(["target", "bound", "measured", "verdict"], cells)


def measured(row: dict[str, Any]) -> str:
    return "" if row["measured"] is None else number(row["measured"])


def verdict_of(row: dict[str, Any], repetitions: int | None) -> str:
    """`repetitions` is None where the file does not say how many there were."""
    verdict = f"**{row['verdict']}**" if row["verdict"] == "FAIL" else row["verdict"]
    return f"{verdict}, of one repetition" if repetitions == 1 and row["measured"] is not None else verdict
