"""Medians, spreads and verdicts: rules over the samples of a run of `make bench-peers`, or of `make bench`."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from peers.plan import SAME

OURS = "jitney"
# What is compared, and whether less is better.
# The gaps between parts are shown and not compared: a server that holds parts back until the end has the smallest gaps.
COMPARED = {"rps": False, "p50_ms": True, "p95_ms": True, "parts_s": False, "first_p50_ms": True}
SHOWN = ("rps", "p50_ms", "p95_ms", "p99_ms", "parts_s", "first_p50_ms", "gap_p99_ms", "memory_mb")
# A server that fails more than this share of its requests wins no comparison, ours loses it; but under overload all may
# refuse, and then the latencies of those are compared that refuse about as much.
MAX_FAILED = 0.01
ALIKE = 0.1
# Spreads of two servers that are the same do not touch once in three times with two repetitions each, once in ten with
# three.
LEAST_REPETITIONS = 3
# Points at which a server that keeps up answers just what it is asked for.
OFFERED = ("open 60%", *SAME)
# Not other servers in the tables of `make bench`: bare hyper, jitney through `connect`, no model at all.
NO_OTHERS = (OURS, "hyper", "connect", "none")


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
    """jitney compared with the best other server, in one metric."""

    outcome: str
    """won, even, lost, or not judged."""
    best: str
    ratio: float
    """ours / theirs"""


@dataclass(frozen=True)
class Behind:
    """A median in a table of `make bench` that is better with another server than with jitney."""

    scenario: str
    metric: str
    server: str
    ours: Spread
    theirs: Spread
    outcome: str
    """lost, even or not judged: see `Verdict`."""


@dataclass(frozen=True)
class Row:
    """One point of one load: the entry of every server, and the verdicts."""

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
    return metric in ("rps", "parts_s") or abs(other.failed - ours.failed) <= ALIKE


def is_worse(mine: Spread, theirs: Spread, is_less_better: bool) -> bool:
    return mine.median > theirs.median if is_less_better else mine.median < theirs.median


def outcome(mine: Spread, theirs: Spread, repetitions: int, is_less_better: bool) -> str:
    """The verdict on two ranges; `repetitions` is the number of the side that has fewer."""
    if repetitions < LEAST_REPETITIONS:
        return "not judged"
    if mine.touches(theirs):
        return "even"
    return "lost" if is_worse(mine, theirs, is_less_better) else "won"


def judge(ours: Entry, others: list[Entry], metric: str, is_overload: bool) -> Verdict | None:
    """None where no other server can be compared."""
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
    found = outcome(mine, theirs, min(ours.repetitions, best.repetitions), is_less_better)
    if found != "not judged" and ours.failed > MAX_FAILED and not is_overload:
        found = "lost"
    return Verdict(found, best.server, mine.median / theirs.median if theirs.median else float("inf"))


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
                if metric in ("rps", "parts_s") and point in OFFERED:
                    continue  # each answers what it is asked for, or not: the closed loops have said what it can do
                if verdict := judge(ours, entries, metric, point == "open 150%"):
                    verdicts[metric] = verdict
            if entries:
                rows.append(Row(load, point, entries, verdicts))
    return rows


def lost(rows: list[Row]) -> list[tuple[Row, str, Verdict]]:
    return [(row, metric, found) for row in rows for metric, found in row.verdicts.items() if found.outcome == "lost"]


def done(rows: list[Row]) -> tuple[int, int]:
    """The fewest and the most repetitions that a figure of these rows rests on."""
    found = [entry.repetitions for row in rows for entry in row.entries]
    return min(found, default=0), max(found, default=0)


def behind(document: dict[str, Any], scenario: str) -> list[Behind]:
    """Where another server has the better rate or p50 in this table of `make bench`, whatever the spreads say."""
    medians = document["medians"][scenario]
    samples = document.get("samples", {}).get(scenario) or {server: [found] for server, found in medians.items()}
    found: list[Behind] = []
    for metric in medians.get(OURS, {}):
        is_less_better = metric.endswith("p50_ms")
        if metric != "rps" and not is_less_better:
            continue
        spreads = {
            server: Spread.of(run[metric] for run in runs) for server, runs in samples.items() if metric in runs[0]
        }
        others = [server for server in spreads if server not in NO_OTHERS]
        if not others:
            continue
        best = (min if is_less_better else max)(others, key=lambda server: spreads[server].median)
        mine, theirs = spreads[OURS], spreads[best]
        if is_worse(mine, theirs, is_less_better):
            repetitions = min(len(samples[OURS]), len(samples[best]))
            word = outcome(mine, theirs, repetitions, is_less_better)
            found.append(Behind(scenario, metric, best, mine, theirs, word))
    return found
