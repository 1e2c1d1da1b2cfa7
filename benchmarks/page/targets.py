"""The part of the page about the project's own targets."""

from page.results import Sources
from page.text import machine, measured, number, run_of, table, verdict_of, versions


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
