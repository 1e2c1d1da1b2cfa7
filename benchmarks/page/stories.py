"""The part of the page about the stories."""

from typing import Any

from page.compare import Spread
from page.results import Found
from page.text import machine, number, spread, table, targets_table, versions


def story(found: dict[str, Any]) -> list[str]:
    theirs = found.get("theirs") or {"label": "", "metrics": {}}
    columns = list(dict.fromkeys([*theirs["metrics"], *(name for row in found["rows"] for name in row["metrics"])]))
    cells: list[list[str]] = []
    if theirs["metrics"]:
        values = [number(theirs["metrics"][name]) if name in theirs["metrics"] else "" for name in columns]
        cells.append([f"*{theirs['label']}*", *values, ""])
    for row in found["rows"]:
        name = f"**{row['variant']}**" if row.get("side") == "jitney" else row["variant"]
        values = [metric_cell(row, column) for column in columns]
        cells.append([name, *values, row.get("note", "")])
    if found.get("ratio"):
        values = [number(found["ratio"][name]) if name in found["ratio"] else "" for name in columns]
        cells.append([f"ratio, {' / '.join(found.get('compared', ('ours', 'theirs')))}", *values, ""])
    lines = [f"### {found['name']}", "", found.get("what", ""), ""]
    if found.get("missing"):
        lines += [f"Left out: {found['missing']}", ""]
    if found.get("scaled"):
        lines += [f"Scaled or simulated: {found['scaled']}", ""]
    lines += [*table(["variant", *columns, "note"], cells), ""]
    return [*lines, *targets_table(found["targets"]), ""] if found.get("targets") else lines


def metric_cell(row: dict[str, Any], column: str) -> str:
    if column not in row["metrics"] or row["metrics"][column] is None:
        return ""
    low, high = row.get("spread", {}).get(column) or (row["metrics"][column],) * 2
    return spread(Spread(row["metrics"][column], low, high))


def stories(found: Found | None) -> list[str]:
    if found is None:
        return ["## Stories", "", "Not measured yet: `make bench-stories`.", ""]
    document = found.document
    method = document.get("method", {})
    lines = [
        "## Stories",
        "",
        f"`make bench-stories`, {document['date']}, [{found.name}](results/{found.name}). "
        f"{machine(document)}; {versions(document)}.",
        "",
        *(f"- {note}" for note in method.get("notes", [])),
        *(f"- not measured: {line}" for line in document.get("not_measured", [])),
        "",
    ]
    for one in document["stories"]:
        lines += story(one)
    return lines
