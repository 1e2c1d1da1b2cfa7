"""The figures of the project's README."""

from page.compare import rows_of
from page.peers import LOAD_TITLES, titles
from page.results import Found, Sources
from page.targets import NAMES
from page.text import number, table


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
    "memory of all its processes (RSS, added), MB": ("no-op, 64 connections", "resident_mb"),
}


def shown_in_readme(sources: Sources) -> list[str]:
    runs = [sources.peers, *(sources.scenarios.get(scenario) for scenario, _ in NOOP.values())]
    return sorted({run.name for run in runs if run})


def noop_table(scenarios: dict[str, Found]) -> list[str]:
    """The model that does nothing, beside what a server costs at the least."""
    columns = {name: NAMES[name] for name in ("jitney", "hyper", "mosec", "fastapi")}
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
