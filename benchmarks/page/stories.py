"""The part of the page about the stories."""

from typing import Any

from page.age import age
from page.compare import Spread
from page.results import Found
from page.text import commit, machine, number, spread, table, targets_table, versions

# Every story of `make bench-stories`. The report names those that the newest file lacks.
STORIES = {
    "1": "text to image, 8 users",
    "1-drawing": "text to image with a model that computes, 8 users",
    "2-sleeping": "I/O of 5 ms beside a model that sleeps",
    "2-computing": "I/O of 5 ms beside a model that computes in Python",
    "2-minilm": "I/O of 5 ms beside MiniLM",
    "3": "replicas",
    "4": "40 users, 10 tokens from a model of 125M",
    "4-opt": "the same with a model that computes",
    "5": "250 requests a second, steadily",
}
BATCHED_BY_HAND = (
    "The hand-written batching has the settings that the story names, 50 items and 100 ms, so it can only lose: 40 "
    "users never fill a batch of 50, and the model is idle for 100 ms each time. The row shows the cost of this "
    "setting, not the limit of hand-written batching."
)
CAVEATS = {"4": BATCHED_BY_HAND, "4-opt": BATCHED_BY_HAND}


def repetitions(found: dict[str, Any]) -> list[int]:
    """How often each variant was measured; nothing where the file does not say."""
    return [len(samples) for samples in found.get("samples", {}).values()]


def rests_on(found: dict[str, Any]) -> str:
    counts = repetitions(found)
    if not counts:
        return ""
    least, most = min(counts), max(counts)
    if most == 1:
        return "Measured once: no medians and no spread."
    return f"Medians of {least} repetitions." if least == most else f"Medians of {least} to {most} repetitions."


def missing_stories(runs: list[Found]) -> list[str]:
    """The stories without a figure in any of these."""
    measured = {one.get("key") for run in runs for one in run.document["stories"] if one["rows"]}
    return [name for key, name in STORIES.items() if key not in measured]


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
    for text in (rests_on(found), CAVEATS.get(found.get("key", ""), "")):
        if text:
            lines += [text, ""]
    if found.get("missing"):
        lines += [f"Left out: {found['missing']}", ""]
    if found.get("scaled"):
        lines += [f"Scaled or simulated: {found['scaled']}", ""]
    lines += [*table(["variant", *columns, "note"], cells), ""]
    return (
        [*lines, *targets_table(found["targets"], min(repetitions(found), default=None)), ""]
        if found.get("targets")
        else lines
    )


def metric_cell(row: dict[str, Any], column: str) -> str:
    if column not in row["metrics"] or row["metrics"][column] is None:
        return ""
    low, high = row.get("spread", {}).get(column) or (row["metrics"][column],) * 2
    return spread(Spread(row["metrics"][column], low, high))


def stories(runs: list[Found]) -> list[str]:
    if not runs:
        return ["## Stories", "", "Not measured yet: `make bench-stories`.", ""]
    lines = ["## Stories", ""]
    if missing := missing_stories(runs):
        lines += [f"Not measured: {'; '.join(missing)}.", ""]
    for run in runs:
        lines += stories_of_run(run)
    return lines


def stories_of_run(found: Found) -> list[str]:
    """The stories that are shown from one run."""
    document = found.document
    method = document.get("method", {})
    lines = [
        f"`make bench-stories`, {document['date']}, {commit(document)}{age(document)}, "
        f"[{found.name}](results/{found.name}). "
        f"{machine(document)}; {versions(document)}.",
        "",
        *(f"- {note}" for note in method.get("notes", [])),
        *(f"- not measured: {line}" for line in document.get("not_measured", [])),
        "",
    ]
    for one in document["stories"]:
        lines += story(one)
    return lines
