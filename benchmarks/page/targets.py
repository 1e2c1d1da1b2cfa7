"""The part of the page about the project's own targets."""

from page.compare import Behind, behind
from page.results import Found, Sources, TargetRow
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
    lines = [
        "## Targets",
        "",
        "`make bench`. Each row comes from the newest run that measured it, which the last column names. Figures are "
        "medians of interleaved repetitions. Memory is the resident memory (RSS) of all processes, added up. Pages "
        "that front and worker share count twice in it. In the tables of other servers they count once (PSS).",
        "",
        *rows_of(sources.targets),
    ]
    for scenario, run in sources.scenarios.items():
        worse = behind(run.document, scenario)
        note = [f"**Behind:** {'; '.join(comparison(one) for one in worse)}.", ""] if worse else []
        lines += figures_of(scenario, run, note)
    return lines


def scale(sources: Sources) -> list[str]:
    """The section of `make bench-scale`."""
    if not sources.scale_targets:
        return []
    lines = [
        "## Many machines, and models that use each other",
        "",
        "`make bench-scale`. The machines are network namespaces of one machine, so all of them, the Ray cluster and "
        "the load generator share its cores. The models of replicas sleep: they use no core, as if they computed on "
        "an accelerator. Memory is that of all processes, those of Ray included.",
        "",
        *rows_of(sources.scale_targets),
    ]
    for scenario, run in sources.scale_scenarios.items():
        lines += figures_of(scenario, run, [])
    return lines


def rows_of(targets: list[TargetRow]) -> list[str]:
    cells = [
        [
            target.row["target"],
            target.row["bound"],
            measured(target.row),
            verdict_of(target.row, repetitions_of(target)),
            run_of(target.run),
        ]
        for target in targets
    ]
    return [*table(["target", "bound", "measured", "verdict", "run"], cells), ""]


def figures_of(scenario: str, run: Found, note: list[str]) -> list[str]:
    of = run.document["medians"][scenario]
    columns = list(dict.fromkeys(name for figures in of.values() for name in figures))
    figures = [
        [server, *(number(found[name]) if name in found else "" for name in columns)] for server, found in of.items()
    ]
    about = f"{run_of(run)}. {machine(run.document)}; {versions(run.document)}."
    return [f"### {scenario}", "", about, "", *note, *table(["server", *columns], figures), ""]
