"""One measurement from beginning to end: runs or points of a sweep, each said as soon as it is there."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jitney.context import available_cores

from jitney_bench import sweep
from jitney_bench.measure import Subject, measure, merged
from jitney_bench.options import Closed, Run
from jitney_bench.reports import document, terminal

Say = Callable[[str], None]


def repeated(subject: Subject, run: Run, times: int, say: Say) -> dict[str, Any]:
    """Carry out a run several times; returns the parts of the document."""
    runs, cores = list[dict[str, Any]](), available_cores()
    for number in range(1, times + 1):
        label = f"run {number} of {times}" if times > 1 else ""
        runs.append(_watched(subject, run, f"{label}: " if label else "", say))
        say("\n".join([*([label] if label else []), *terminal.run_lines(runs[-1], cores, run.load.to_dict()["kind"])]))
        if runs[-1]["server"]["gone"]:
            break
    together = merged(runs)
    if len(runs) > 1:
        say("\n".join([f"all {len(runs)} runs", *terminal.together_lines(runs, together)]))
    return {"summary": {**document.summary(runs), **together}, "runs": runs}


def swept(subject: Subject, run: Run, is_bounded: bool, say: Say) -> dict[str, Any]:
    """Carry out a sweep; returns the parts of the document."""
    points: list[dict[str, Any]] = []
    for load in sweep.loads(run.load, is_bounded):
        threads = min(run.threads, load.users) if isinstance(load, Closed) else run.threads
        done = _watched(subject, replace(run, load=load, threads=threads), f"{load}: ", say)
        points.append({"load": load.to_dict(), "label": str(load), "run": done})
        if done["server"]["gone"] or (not is_bounded and sweep.is_over(points)):
            break
    parts = {"points": points, "knee": sweep.knee(points), "limit": sweep.limit(points, available_cores())}
    gone = [terminal.gone_line(point["run"]) for point in points if point["run"]["server"]["gone"]]
    say("\n".join([*terminal.sweep_lines(parts), *gone]))
    return parts


def _watched(subject: Subject, run: Run, label: str, say: Say) -> dict[str, Any]:
    live, points = terminal.Live(), list[Mapping[str, Any]]()
    live.show(f"{label}warming up")

    def progress(point: Mapping[str, Any]) -> None:
        points.append(point)
        live.show(terminal.live_line(point, run.duration_s, label))

    try:
        return measure(subject, run, progress)
    except KeyboardInterrupt:
        live.close()
        if points:
            say(f"{label}{terminal.stopped_line(points, run.duration_s)}")
        raise
    finally:
        live.close()
