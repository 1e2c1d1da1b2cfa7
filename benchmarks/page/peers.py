"""The part of the page about other servers."""

from typing import Any

from page.age import age
from page.compare import LEAST_REPETITIONS, SHOWN, Entry, Row, done, rows_of
from page.results import Found
from page.text import COLUMNS, commit, machine, number, spread, table, versions

LOAD_TITLES = {
    "noop": "A model that does nothing",
    "sleepy": "A model of 5 ms + 0.1 ms per item (it sleeps)",
    "minilm": "MiniLM, texts of mixed lengths",
    "grouped": "5 ms + 0.1 ms per item, two group keys alternating",
    "bytes": "1 MB in and out",
    "stream-noop": "64 parts of 4 letters, a model that does nothing",
    "stream-sleepy": "steps of 8 ms + 0.2 ms per item (it sleeps), 10 to 500 parts",
}
POINT_TITLES = {
    "closed 1": "1 user",
    "closed 16": "16 users",
    "closed 64": "64 users",
    "closed 256": "256 users",
    "open 60%": "arrivals at 60 % of its own capacity",
    "open 150%": "arrivals at 150 % of its own capacity",
    "same slowest": "the same arrivals for all, 60 % of the slowest other's capacity",
    "same best": "the same arrivals for all, 60 % of the best other's capacity",
}


def titles(document: dict[str, Any]) -> dict[str, str]:
    return {name: found["title"] for name, found in document["servers"].items()}


def headline(document: dict[str, Any], rows: list[Row]) -> list[str]:
    """The score, and one line per load."""
    names = titles(document)
    outcomes = [verdict.outcome for row in rows for verdict in row.verdicts.values()]
    score = ", ".join(
        f"{outcomes.count(word)} {word}" for word in ("won", "even", "lost", "not judged") if word in outcomes
    )
    lines = [
        f"Throughput, p50 and p95 of jitney with its defaults, compared with the best other server: **{score}**.",
        "",
    ]
    for row in (row for row in rows if row.point == "closed 64"):
        ours, verdict = row.entry("jitney"), row.verdicts.get("rps")
        if not ours or not verdict:
            continue
        theirs = row.entry(verdict.best)
        assert theirs
        lines.append(
            f"- {LOAD_TITLES[row.load]}, 64 users: {number(ours.metrics['rps'].median)} requests/s, "
            f"{number(verdict.ratio)} times the next ({names[verdict.best]}, {number(theirs.metrics['rps'].median)})."
        )
    return lines


def verdict_table(document: dict[str, Any], rows: list[Row]) -> list[str]:
    names = titles(document)
    cells: list[list[str]] = []
    for row in rows:
        line = [f"{LOAD_TITLES[row.load]}, {POINT_TITLES[row.point]}"]
        for metric in judged(rows):
            found = row.verdicts.get(metric)
            word = f"**{found.outcome}**" if found and found.outcome == "lost" else found.outcome if found else "alone"
            line.append(f"{word} · {number(found.ratio)} of {names[found.best]}" if found else word)
        cells.append(line)
    return table(["row", *(COLUMNS[metric].removesuffix(", ms") for metric in judged(rows))], cells)


def judged(rows: list[Row]) -> list[str]:
    """The figures that are compared in these rows: those of the parts, where answers come in parts."""
    has_parts = any("parts_s" in entry.metrics for row in rows for entry in row.entries)
    return ["parts_s", "first_p50_ms", "p50_ms"] if has_parts else ["rps", "p50_ms", "p95_ms"]


def entry_cells(names: dict[str, str], entry: Entry, shown: list[str]) -> list[str]:
    metrics = [spread(entry.metrics[name]) if name in entry.metrics else "" for name in shown]
    failed = "0" if entry.failed == 0 else f"{max(entry.failed * 100, 0.01):.2g} %"
    limit = "the generator" if entry.generator_was_limit else ""
    return [names[entry.server], entry.cell, *metrics, failed, limit]


def row_table(document: dict[str, Any], row: Row) -> list[str]:
    names, is_open = titles(document), row.point.startswith("open")
    shown = [
        *(["offered_rps"] if is_open else []),
        *(name for name in SHOWN if any(name in e.metrics for e in row.entries)),
    ]
    header = ["server", "settings", *(COLUMNS[name] for name in shown), "failed", "limited by"]
    best = sorted(row.entries, key=lambda entry: -entry.metrics["rps"].median if "rps" in entry.metrics else 0)
    drop = all(not entry.generator_was_limit for entry in row.entries)
    lines = [entry_cells(names, entry, shown) for entry in best]
    lost_in = [COLUMNS[metric] for metric, verdict in row.verdicts.items() if verdict.outcome == "lost"]
    text = [f"#### {POINT_TITLES[row.point]}", ""]
    if lost_in:
        text += [
            f"**Lost** in {', '.join(lost_in)}: [why](../docs/design/0012-benchmarks.md#lost-rows-and-their-reasons).",
            "",
        ]
    return [*text, *table(header[:-1] if drop else header, [cells[:-1] if drop else cells for cells in lines]), ""]


def servers_table(document: dict[str, Any]) -> list[str]:
    cells = [
        [
            found["title"],
            found["version"] or "none",
            found["state"],
            found["reason"].replace("|", "·").replace("\n", " ") or "",
            "" if name == "jitney" else f"<{found['source']}>",
        ]
        for name, found in document["servers"].items()
    ]
    return table(["server", "version", "state", "reason", "set up after"], cells)


def repetitions(method: dict[str, Any], rows: list[Row]) -> str:
    """Those that were done; of those that were planned only where it is not the same."""
    least, most = done(rows)
    text = f"{least} interleaved repetitions" if least == most else f"{least} to {most} interleaved repetitions"
    return text if least == most == method["repetitions"] else f"{text} ({method['repetitions']} were planned)"


def streams(found: Found | None) -> list[str]:
    """The same for answers that come in parts."""
    return peers(found, "## Other servers, answers in parts", "make bench-peers LOADS=stream")


def peers(found: Found | None, title: str = "## Other servers", command: str = "make bench-peers") -> list[str]:
    if found is None:
        return [title, "", f"Not measured yet: `{command}`.", ""]
    document, rows = found.document, rows_of(found.document)
    method, names = document["method"], titles(document)
    lines = [
        title,
        "",
        f"`{command}`, {document['date']}, {commit(document)}{age(document)}, "
        f"[{found.name}](results/{found.name}): "
        f"{repetitions(method, rows)} of "
        f"{method['seconds']:g} s, medians (least to most). "
        f"Generator: {document['generator']['name']} {document['generator']['version']}. "
        f"{machine(document)}; {versions(document)}.",
        "",
        *servers_table(document),
        "",
        *(f"- {note}" for note in method["notes"]),
        *(
            f"- {names.get(problem['server'], problem['server'])}, load `{problem['load']}`: not measured: "
            + problem["reason"].replace("\n", " ")
            for problem in document["problems"]
        ),
        "",
        "### Won, even, lost",
        "",
        "A ratio is jitney's median divided by that of the best other server. For requests/s above 1 is better, for "
        "times below 1. `won` means that the median is better and that the ranges of the repetitions do not overlap. "
        "`lost` means that it is worse and that they do not overlap. `even` means that they overlap. `not judged` "
        f"means that one side has fewer than {LEAST_REPETITIONS} repetitions. `alone`: no other server is comparable. "
        "At 60 % and 150 % each server gets a share of its own capacity, so slow servers get less load. In the rows "
        "with the same arrivals for all, every server gets the same load.",
        "",
        *verdict_table(document, rows),
        "",
    ]
    for load in method["loads"]:
        of_load = [row for row in rows if row.load == load]
        if of_load:
            lines += [f"### {LOAD_TITLES[load]}", ""]
            for row in of_load:
                lines += row_table(document, row)
    return lines
