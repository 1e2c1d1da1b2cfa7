"""The runs that the report shows: the newest with other servers, of each story and of each scenario."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Document = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """A document and the name of its file."""

    name: str
    document: Document


@dataclass(frozen=True)
class TargetRow:
    """One promise, and the run that measured it."""

    row: dict[str, Any]
    run: Found | None


@dataclass(frozen=True)
class Sources:
    """Everything that the page shows."""

    peers: Found | None = None
    streams: Found | None = None
    """The run with other servers whose answers come in parts."""
    stories: list[Found] = field(default_factory=list[Found])
    """The runs, the newest first, each with those stories alone that are shown from it."""
    targets: list[TargetRow] = field(default_factory=list[TargetRow])
    scenarios: dict[str, Found] = field(default_factory=dict[str, Found])
    """Scenario of `make bench` → the run whose figures are shown."""
    scale_targets: list[TargetRow] = field(default_factory=list[TargetRow])
    scale_scenarios: dict[str, Found] = field(default_factory=dict[str, Found])
    """The same of `make bench-scale`."""


def read(folder: Path) -> Sources:
    found = [Found(path.name, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    benches = [
        run
        for run in found
        if {"targets", "medians"} <= run.document.keys() and "kind" not in run.document and "quick" not in run.name
    ]
    scale = [run for run in found if run.document.get("kind") == "scale"]
    return Sources(
        newest(found, "peers"),
        newest(found, "stream-peers"),
        stories(found),
        targets(benches),
        scenarios(benches),
        targets(scale),
        scenarios(scale),
    )


def newest(found: list[Found], kind: str) -> Found | None:
    of_kind = [run for run in found if run.document.get("kind") == kind]
    return max(of_kind, key=date, default=None)


def stories(found: list[Found]) -> list[Found]:
    """Each story from the newest run that has it; from a run with several repetitions, if there is one."""
    runs = sorted((run for run in found if run.document.get("kind") == "stories"), key=date)
    chosen: dict[str, str] = {}
    for run in runs:
        for story in run.document["stories"]:
            is_repeated = story.get("repetitions", 0) > 1
            if story["rows"] and (is_repeated or story["key"] not in chosen):
                chosen[story["key"]] = run.name
    return [
        Found(run.name, {**run.document, "stories": selected})
        for run in reversed(runs)
        if (selected := [story for story in run.document["stories"] if chosen.get(story["key"]) == run.name])
    ]


def date(run: Found) -> str:
    return run.document["date"]


def repeats(run: Found) -> bool:
    return run.document["method"]["repetitions"] > 1


def targets(benches: list[Found]) -> list[TargetRow]:
    """Each target from the newest run that measured it, repeated if any is; in the order of the newest."""
    if not benches:
        return []
    listed: dict[str, TargetRow] = {}
    for run in sorted(benches, key=lambda run: (repeats(run), date(run))):
        for row in run.document["targets"]:
            if row["verdict"] != "not measured":
                listed[row["target"]] = TargetRow(row, run)
    last = max(benches, key=date).document["targets"]
    return [listed.get(row["target"], TargetRow(row, None)) for row in last]


def scenarios(benches: list[Found]) -> dict[str, Found]:
    """Each scenario from the run with the most servers side by side, the newest of those; in the order of names."""
    chosen: dict[str, Found] = {}
    for run in sorted(benches, key=lambda run: (repeats(run), date(run))):
        for name, servers in run.document["medians"].items():
            if name not in chosen or len(servers) >= len(chosen[name].document["medians"][name]):
                chosen[name] = run
    return dict(sorted(chosen.items()))
