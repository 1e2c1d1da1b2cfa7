"""The page as Markdown, and the figures of the project's README."""

from typing import Any

from page.compare import SHOWN, Entry, Row, Spread, lost, rows_of
from page.results import Found, Sources

LOAD_TITLES = {
    "noop": "A model that does nothing",
    "sleepy": "A model of 5 ms + 0.1 ms per item (it sleeps)",
    "minilm": "MiniLM, texts of mixed lengths",
    "grouped": "5 ms + 0.1 ms per item, two group keys alternating",
    "bytes": "1 MB in and out",
}
COLUMNS = {
    "rps": "requests/s",
    "p50_ms": "p50, ms",
    "p95_ms": "p95, ms",
    "p99_ms": "p99, ms",
    "memory_mb": "memory, MB",
    "offered_rps": "offered, requests/s",
}
POINT_TITLES = {
    "closed 1": "1 user",
    "closed 64": "64 users",
    "closed 256": "256 users",
    "open 60%": "arrivals at 60 % of its own capacity",
    "open 150%": "arrivals at 150 % of its own capacity",
}


def number(value: float) -> str:
    """Three digits, as much as such a measurement is worth."""
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


def versions(document: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in document["versions"].items() if version != "none")


# ── Other servers ───────────────────────────────────────────────────────────


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
        f"Throughput, p50 and p95 of jitney with its defaults, beside the best of the others in each row: **{score}**.",
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
        for metric in ("rps", "p50_ms", "p95_ms"):
            found = row.verdicts.get(metric)
            word = f"**{found.outcome}**" if found and found.outcome == "lost" else found.outcome if found else "alone"
            line.append(f"{word} · {number(found.ratio)} of {names[found.best]}" if found else word)
        cells.append(line)
    return table(["row", "requests/s", "p50", "p95"], cells)


def entry_cells(names: dict[str, str], entry: Entry, is_open: bool) -> list[str]:
    shown = [*(["offered_rps"] if is_open else []), *SHOWN]
    metrics = [spread(entry.metrics[name]) if name in entry.metrics else "" for name in shown]
    failed = "0" if entry.failed == 0 else f"{max(entry.failed * 100, 0.01):.2g} %"
    limit = "the generator" if entry.generator_was_limit else ""
    return [names[entry.server], entry.cell, *metrics, failed, limit]


def row_table(document: dict[str, Any], row: Row) -> list[str]:
    names, is_open = titles(document), row.point.startswith("open")
    shown = [*(["offered_rps"] if is_open else []), *SHOWN]
    header = ["server", "settings", *(COLUMNS[name] for name in shown), "failed", "limited by"]
    best = sorted(row.entries, key=lambda entry: -entry.metrics["rps"].median if "rps" in entry.metrics else 0)
    drop = all(not entry.generator_was_limit for entry in row.entries)
    lines = [entry_cells(names, entry, is_open) for entry in best]
    lost_in = [COLUMNS[metric] for metric, verdict in row.verdicts.items() if verdict.outcome == "lost"]
    text = [f"#### {POINT_TITLES[row.point]}", ""]
    if lost_in:
        text += [
            f"**Lost** in {', '.join(lost_in)}: [why](../docs/design/0012-proof.md#lost-rows-and-their-reasons).",
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


def peers(found: Found | None) -> list[str]:
    if found is None:
        return ["## Other servers", "", "Not measured yet: `make bench-peers`.", ""]
    document, rows = found.document, rows_of(found.document)
    method, names = document["method"], titles(document)
    lines = [
        "## Other servers",
        "",
        f"`make bench-peers`, {document['date']}, [{found.name}](results/{found.name}): {method['repetitions']} "
        f"interleaved repetitions of {method['seconds']:g} s, medians (least to most). "
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
        "Ratios are jitney's median over that of the best other server: above 1 is better for requests/s, below 1 for "
        "times. Lost: worse, and the spreads do not touch; won: better, and they do not.",
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


# ── Targets and stories ─────────────────────────────────────────────────────


def targets_table(rows: list[dict[str, Any]]) -> list[str]:
    cells = [[row["target"], row["bound"], measured(row), verdict_of(row)] for row in rows]
    return table(["target", "bound", "measured", "verdict"], cells)


def measured(row: dict[str, Any]) -> str:
    return "" if row["measured"] is None else number(row["measured"])


def verdict_of(row: dict[str, Any]) -> str:
    return f"**{row['verdict']}**" if row["verdict"] == "FAIL" else row["verdict"]


def targets(sources: Sources) -> list[str]:
    if not sources.targets:
        return ["## Targets", "", "Not measured yet: `make bench`.", ""]
    cells = [
        [target.row["target"], target.row["bound"], measured(target.row), verdict_of(target.row), run_of(target.run)]
        for target in sources.targets
    ]
    lines = [
        "## Targets",
        "",
        "`make bench`, each row from the newest run that measured it. Medians of interleaved repetitions (one where "
        "the last column says so).",
        "",
        *table(["target", "bound", "measured", "verdict", "run"], cells),
        "",
    ]
    for scenario, run in sources.scenarios.items():
        of = run.document["medians"][scenario]
        columns = list(dict.fromkeys(name for figures in of.values() for name in figures))
        figures = [
            [server, *(number(found[name]) if name in found else "" for name in columns)]
            for server, found in of.items()
        ]
        about = f"{run_of(run)}. {machine(run.document)}; {versions(run.document)}."
        lines += [f"### {scenario}", "", about, "", *table(["server", *columns], figures), ""]
    return lines


def run_of(run: Found | None) -> str:
    if run is None:
        return ""
    method = run.document["method"]
    return f"[{run.document['date'][:16]}](results/{run.name}), {method['repetitions']} of {method['seconds']:g} s"


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


# ── The whole ───────────────────────────────────────────────────────────────


def page(sources: Sources) -> str:
    """benchmarks/README.md."""
    lines = [
        "# How fast it is, beside what",
        "",
        "<!-- Made by `make bench-page` from results/*.json; do not edit. -->",
        "",
    ]
    if sources.peers:
        document = sources.peers.document
        rows = rows_of(document)
        lines += [*headline(document, rows), ""]
        if lost_rows := lost(rows):
            why = "[the design notes](../docs/design/0012-proof.md#lost-rows-and-their-reasons)"
            lines += [f"{len(lost_rows)} figures are lost; each is marked below and explained in {why}.", ""]
    if sources.targets:
        verdicts = [target.row["verdict"] for target in sources.targets]
        held, failed = verdicts.count("pass"), verdicts.count("FAIL")
        rest = len(verdicts) - held - failed
        lines += [f"Of the project's own targets {held} hold, {failed} do not, {rest} were not measured.", ""]
    lines += [
        "The machines are shared and the generator runs on the same cores as the servers, so read ratios within one "
        "table and nothing across tables. The same with plots: [report.html](report.html). How it is made fair, what "
        "is simulated, and why rows are lost: [0012](../docs/design/0012-proof.md). Make it again: `make bench`, "
        "`make bench-peers`, `make bench-stories`, then `make bench-page`.",
        "",
        *peers(sources.peers),
        *stories(sources.stories),
        *targets(sources),
    ]
    return "\n".join(lines).rstrip() + "\n"


def readme_figures(sources: Sources) -> str:
    """What stands between the marks in the project's README."""
    lines: list[str] = []
    if sources.peers:
        document = sources.peers.document
        names, rows = titles(document), rows_of(document)
        cells: list[list[str]] = []
        for row in (row for row in rows if row.point == "closed 64" and "rps" in row.verdicts):
            ours, verdict = row.entry("jitney"), row.verdicts["rps"]
            theirs = row.entry(verdict.best)
            assert ours and theirs
            cells.append(
                [
                    LOAD_TITLES[row.load],
                    number(ours.metrics["rps"].median),
                    f"{names[verdict.best]}: {number(theirs.metrics['rps'].median)}",
                    number(verdict.ratio),
                ]
            )
        lines += [*table(["requests/s, 64 users", "jitney", "the best of the others", "ratio"], cells), ""]
        lines += ["jitney runs with its defaults there, the others with the best of up to three settings.", ""]
    lines += noop_table(sources.scenarios)
    where = ", ".join(f"[{name}](benchmarks/results/{name})" for name in shown_in_readme(sources))
    commands = ["`make bench-peers`"] * bool(sources.peers) + ["`make bench`"]
    lines += [
        f"From {' and '.join(commands)}, on cores that others share, load generator included: read the ratios.",
        "In `make bench` Mosec and FastAPI wait 5 ms for a batch, which a lone request feels.",
        f"[Every row, wins and losses, with versions and method](benchmarks/README.md). Made from {where}.",
    ]
    return "\n".join(lines) + "\n"


NOOP = {
    "requests/s, 64 connections": ("no-op, 64 connections", "rps"),
    "requests/s, 256 connections": ("no-op, 256 connections", "rps"),
    "p50 at 1 connection, ms": ("no-op, 1 connection", "p50_ms"),
    "memory of all its processes, MB": ("no-op, 64 connections", "resident_mb"),
}


def shown_in_readme(sources: Sources) -> list[str]:
    runs = [sources.peers, *(sources.scenarios.get(scenario) for scenario, _ in NOOP.values())]
    return sorted({run.name for run in runs if run})


def noop_table(scenarios: dict[str, Found]) -> list[str]:
    """The model that does nothing, beside what a server costs at the least."""
    columns = {"jitney": "jitney", "hyper": "bare hyper", "mosec": "Mosec", "fastapi": "FastAPI, batched by hand"}
    found = {
        scenario: scenarios[scenario].document["medians"][scenario]
        for scenario, _ in NOOP.values()
        if scenario in scenarios
    }
    if not found:
        return []
    cells: list[list[str]] = []
    for label, (scenario, metric) in NOOP.items():
        figures = [found.get(scenario, {}).get(name, {}).get(metric) for name in columns]
        cells.append([label, *("" if value is None else number(value) for value in figures)])
    return [*table(["no-op model, `make bench`", *columns.values()], cells), ""]
