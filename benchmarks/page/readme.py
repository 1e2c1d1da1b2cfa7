"""The figures of the project's README."""

from page.compare import rows_of
from page.peers import LOAD_TITLES, titles
from page.results import Document, Found, Sources
from page.targets import NAMES
from page.text import commit, number, table

REASONS = "docs/design/0006-performance.md#targets-not-reached"
LOST_ROWS = "docs/design/0012-benchmarks.md#lost-rows-and-their-reasons"


def readme_figures(sources: Sources) -> str:
    """The text between the marks in the project's README."""
    lines: list[str] = []
    if sources.peers:
        lines += [*peers_table(sources.peers.document), ""]
        lines += [
            f"`make bench-peers`, {measured_in(sources.peers)}. jitney runs with its defaults. Each other server runs "
            "with the best of up to three settings.",
            "",
        ]
    lines += noop_table(sources.scenarios)
    lines += [
        "`make bench`. Mosec and FastAPI wait 5 ms for a batch here, which a lone request notices. Server and load "
        "generator share the cores of one machine, so compare ratios and not absolute numbers.",
        "",
        *shortfalls(sources),
        "[How to repeat every measurement, and the full report](benchmarks/README.md).",
    ]
    return "\n".join(lines) + "\n"


def measured_in(run: Found) -> str:
    """A link to the file of a run, with its date and commit."""
    return f"[{run.document['date'][:10]}](benchmarks/results/{run.name}), {commit(run.document)}"


def peers_table(document: Document) -> list[str]:
    """The throughput of each load with 64 users, compared with the best other server."""
    names = titles(document)
    cells: list[list[str]] = []
    for row in (row for row in rows_of(document) if row.point == "closed 64" and "rps" in row.verdicts):
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
    return table(["requests/s, 64 users", "jitney", "best other server", "ratio"], cells)


NOOP = {
    "requests/s, 64 connections": ("no-op, 64 connections", "rps"),
    "requests/s, 256 connections": ("no-op, 256 connections", "rps"),
    "p50 at 1 connection, ms": ("no-op, 1 connection", "p50_ms"),
    "memory of all processes (RSS, added), MB": ("no-op, 64 connections", "resident_mb"),
}


def noop_table(scenarios: dict[str, Found]) -> list[str]:
    """The model that does nothing, compared with bare hyper and others. Each row names its run."""
    columns = {name: NAMES[name] for name in ("jitney", "hyper", "mosec", "fastapi")}
    cells: list[list[str]] = []
    for label, (scenario, metric) in NOOP.items():
        if run := scenarios.get(scenario):
            medians = run.document["medians"][scenario]
            figures = [medians.get(name, {}).get(metric) for name in columns]
            cells.append([label, *("" if value is None else number(value) for value in figures), measured_in(run)])
    return [*table(["no-op model", *columns.values(), "measured"], cells), ""] if cells else []


def shortfalls(sources: Sources) -> list[str]:
    """How much was not reached: rows lost to other servers, and the project's own targets."""
    lines: list[str] = []
    if sources.peers:
        verdicts = [verdict for row in rows_of(sources.peers.document) for verdict in row.verdicts.values()]
        lost = sum(verdict.outcome == "lost" for verdict in verdicts)
        lines += [
            f"jitney loses {lost} of {len(verdicts)} comparisons with other servers: [which, and why]({LOST_ROWS})."
        ]
    if sources.targets:
        failed, of = sum(target.row["verdict"] == "FAIL" for target in sources.targets), len(sources.targets)
        lines += [f"{failed} of the project's own {of} targets are not reached: [which, and why]({REASONS})."]
    return lines
