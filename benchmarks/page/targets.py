"""The part of the page about the project's own targets."""

from page.compare import Behind, behind
from page.results import Sources, TargetRow
from page.text import COLUMNS, machine, measured, number, run_of, spread, table, verdict_of, versions

NAMES = {
    "jitney": "jitney",
    "hyper": "bare hyper",
    "mosec": "Mosec",
    "fastapi": "FastAPI, batched by hand",
    "loop": "the model in the event loop",
    "thread": "the model in a thread",
    "pool": "a process pool",
}


def repetitions_of(target: TargetRow) -> int | None:
    return target.run.document["method"]["repetitions"] if target.run else None


def all_behind(sources: Sources) -> list[Behind]:
    return [one for scenario, run in sources.scenarios.items() for one in behind(run.document, scenario)]


def comparison(one: Behind) -> str:
    outcome = f"**{one.outcome}**" if one.outcome == "lost" else one.outcome
    what = COLUMNS.get(one.metric, one.metric)
    return f"{what}: {spread(one.ours)}, and {spread(one.theirs)} of {NAMES.get(one.server, one.server)}, {outcome}"


def score(sources: Sources) -> list[str]:
    """What holds and what does not, by name, for the head of the page."""
    verdicts = [target.row["verdict"] for target in sources.targets]
    failed = [target for target in sources.targets if target.row["verdict"] == "FAIL"]
    held, once = verdicts.count("pass"), sum(repetitions_of(target) == 1 for target in sources.targets)
    lines: list[str] = []
    if verdicts:
        note = f" ({once} with one repetition only)" if once else ""
        rest = len(verdicts) - held - len(failed)
        lines += [
            f"Of the project's own [targets](#targets) {held} are reached, {len(failed)} are not, and {rest} were not "
            f"measured{note}.{' Not reached:' if failed else ''}",
            "",
            *(
                f"- {target.row['target']}: {measured(target.row)}, target {target.row['bound']}"
                + (", of one repetition" if repetitions_of(target) == 1 else "")
                for target in failed
            ),
            *([""] if failed else []),
        ]
    if worse := all_behind(sources):
        count = f"{len(worse)} median{'s' if len(worse) > 1 else ''}"
        lines += [f"In {count} of `make bench` another server is better than jitney:", ""]
        lines += [*(f"- {one.scenario}: {comparison(one)}" for one in worse), ""]
    return lines


def targets(sources: Sources) -> list[str]:
    if not sources.targets:
        return ["## Targets", "", "Not measured yet: `make bench`.", ""]
    cells = [
        [
            target.row["target"],
            target.row["bound"],
            measured(target.row),
            verdict_of(target.row, repetitions_of(target)),
            run_of(target.run),
        ]
        for target in sources.targets
    ]
    lines = [
        "## Targets",
        "",
        "`make bench`. Each row comes from the newest run that measured it, which the last column names. Figures are "
        "medians of interleaved repetitions. Memory is the resident memory (RSS) of all processes, added up. Pages "
        "that front and worker share count twice in it. In the tables of other servers they count once (PSS).",
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
        lines += [f"### {scenario}", "", about, ""]
        if worse := behind(run.document, scenario):
            lines += [f"**Behind:** {'; '.join(comparison(one) for one in worse)}.", ""]
        lines += [*table(["server", *columns], figures), ""]
    return lines
