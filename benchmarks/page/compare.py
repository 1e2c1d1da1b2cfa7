"""Medians, spreads and verdicts: rules over the samples of one run of `make bench-peers`."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

OURS = "jitney"
# What is compared, and whether less is better.
COMPARED = {"rps": False, "p50_ms": True, "p95_ms": True}
SHOWN = ("rps", "p50_ms", "p95_ms", "p99_ms", "memory_mb")
# A server that fails more than this share of its requests wins no comparison, ours loses it; but under overload all may
# refuse, and then the latencies of those are compared that refuse about as much.
MAX_FAILED = 0.01
ALIKE = 0.1


@dataclass(frozen=True)
class Spread:
    """A median, with the least and the most of the repetitions."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])

    def touches(self, other: "Spread") -> bool:
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Entry:
    """One server at one point of one load."""

    server: str
    cell: str
    repetitions: int
    metrics: dict[str, Spread]
    failed: float
    """Share of the requests that were refused or got no answer."""
    generator_was_limit: bool


@dataclass(frozen=True)
class Verdict:
    """jitney beside the best of the others, in one metric."""

    outcome: str
    """won, even, lost, or not judged."""
    best: str
    ratio: float
    """ours / theirs"""


@dataclass(frozen=True)
class Row:
    """One point of one load: everybody's entry, and the verdicts."""

    load: str
    point: str
    entries: list[Entry]
    verdicts: dict[str, Verdict]

    def entry(self, server: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.server == server), None)


def entry_of(server: str, samples: list[dict[str, Any]]) -> Entry:
    figures = [sample["figures"] for sample in samples]
    metrics: dict[str, Spread] = {}
    for name in (*SHOWN, "offered_rps"):
        values = [found[name] for found in figures if found.get(name) is not None]
        if values:
            metrics[name] = Spread.of(values)
    asked = sum(found["answered"] + found["refused"] + found["broken"] for found in figures)
    failed = sum(found["refused"] + found["broken"] for found in figures) / max(asked, 1)
    was_limit = any(found.get("is_generator_limit") for found in figures)
    return Entry(server, samples[0]["cell"], len(samples), metrics, failed, was_limit)


def is_sound(ours: Entry, other: Entry, metric: str, is_overload: bool) -> bool:
    """Whether the other's figure may be held against ours."""
    if not is_overload:
        return other.failed <= MAX_FAILED
    return metric == "rps" or abs(other.failed - ours.failed) <= ALIKE


def judge(ours: Entry, others: list[Entry], metric: str, is_overload: bool) -> Verdict | None:
    """None where there is nobody to compare with."""
    sound = [
        other
        for other in others
        if metric in other.metrics and other.server != OURS and is_sound(ours, other, metric, is_overload)
    ]
    if not sound or metric not in ours.metrics:
        return None
    is_less_better = COMPARED[metric]
    best = (min if is_less_better else max)(sound, key=lambda entry: entry.metrics[metric].median)
    mine, theirs = ours.metrics[metric], best.metrics[metric]
    is_worse = mine.median > theirs.median if is_less_better else mine.median < theirs.median
    if min(ours.repetitions, best.repetitions) < 2:
        outcome = "not judged"
    elif ours.failed > MAX_FAILED and not is_overload:
        outcome = "lost"
    elif mine.touches(theirs):
        outcome = "even"
    else:
        outcome = "lost" if is_worse else "won"
    return Verdict(outcome, best.server, mine.median / theirs.median if theirs.median else float("inf"))


def rows_of(document: dict[str, Any]) -> list[Row]:
    """All rows, in the order of loads and points of the run."""
    grouped: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for sample in document["samples"]:
        by_server = grouped.setdefault((sample["load"], sample["point"]), {})
        by_server.setdefault(sample["server"], []).append(sample)
    order = list(document["servers"])
    rows: list[Row] = []
    for load in document["method"]["loads"]:
        for point in document["method"]["points"]:
            found = grouped.get((load, point), {})
            entries = [entry_of(server, found[server]) for server in order if server in found]
            ours = next((entry for entry in entries if entry.server == OURS), None)
            verdicts: dict[str, Verdict] = {}
            for metric in COMPARED if ours else ():
                assert ours
                if metric == "rps" and point == "open 60%":
                    continue  # offered is a share of what the server itself can do: the closed loops have said that
                if verdict := judge(ours, entries, metric, point == "open 150%"):
                    verdicts[metric] = verdict
            if entries:
                rows.append(Row(load, point, entries, verdicts))
    return rows


def lost(rows: list[Row]) -> list[tuple[Row, str, Verdict]]:
    return [(row, metric, found) for row in rows for metric, found in row.verdicts.items() if found.outcome == "lost"]
