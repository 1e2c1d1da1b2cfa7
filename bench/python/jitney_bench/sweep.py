"""From little load to too much: where the knee is, and what is at its limit there."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jitney_bench.options import Closed, Open
from jitney_bench.reports import terminal
from jitney_bench.reports.terminal import FULL

MOST_USERS = 1024
STEPS = 8
GAIN = 1.05
"""Less growth than this where the load doubles is none; of a smaller step less is asked, in proportion."""


def loads(load: Closed | Open, is_bounded: bool) -> Iterator[Closed | Open]:
    """Give users doubling up to the load's (or 1,024), or eight rates up to the load's."""
    if isinstance(load, Open):
        yield from (replace(load, rate_per_s=load.rate_per_s * step / STEPS) for step in range(1, STEPS + 1))
        return
    most = load.users if is_bounded else MOST_USERS
    users = 1
    while users < most:
        yield replace(load, users=users)
        users *= 2
    yield replace(load, users=most)


def is_over(points: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether more load would show nothing new: twice no growth, or most requests refused."""
    rates = [point["run"]["rate_per_s"] for point in points]
    requests = points[-1]["run"]["requests"]
    if requests["due"] and requests["answered"] < requests["due"] / 2:
        return True
    return len(rates) > 2 and max(rates[-2:]) < rates[-3] * GAIN


def knee(points: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the point with the most answers per second for its p99 (Kleinrock's power); None if none was answered."""
    power = [
        point["run"]["rate_per_s"] / point["run"]["latency_ms"]["p99"] if point["run"]["latency_ms"] else 0.0
        for point in points
    ]
    best = max(range(len(power)), key=power.__getitem__)
    return best if power[best] > 0 else None


def limit(points: Sequence[Mapping[str, Any]], cores: int) -> dict[str, str]:
    """Say what is at its limit where most was answered, and by which evidence."""
    top = max(range(len(points)), key=lambda place: points[place]["run"]["rate_per_s"])
    point = points[top]
    still_grows = None
    if len(points) > 1:
        still_grows = top == len(points) - 1 and _has_grown(points[top - 1], point)
    who, why = (
        _client(point["run"])
        or _model(point["run"])
        or _cores(point["run"], cores)
        or _others(point["run"], cores)
        or _by_exclusion(point["run"], still_grows)
    )
    return {"who": who, "why": f"at {point['label']} {why}"}


def _has_grown(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Say whether the rate grew with the load: a step of 3 % cannot bring what a doubling does."""
    doublings = math.log2(_load(after) / _load(before))
    return _rate(after) > _rate(before) * GAIN**doublings


def _rate(point: Mapping[str, Any]) -> float:
    return point["run"]["rate_per_s"]


def _load(point: Mapping[str, Any]) -> float:
    load = point["load"]
    return load["users"] if load["kind"] == "closed" else load["rate_per_s"]


def _client(run: Mapping[str, Any]) -> tuple[str, str] | None:
    return ("clients", run["client"]["why"]) if run["client"]["is_limit"] else None


def _model(run: Mapping[str, Any]) -> tuple[str, str] | None:
    busy = run["server"]["model_busy"]
    if busy is None or busy < FULL:
        return None
    return "model", f"the model computed {busy:.0%} of the time{_batches(run)}"


def _cores(run: Mapping[str, Any], cores: int) -> tuple[str, str] | None:
    """Return the process that takes most of the machine, if the machine is the limit."""
    if run["server"]["cpu"] is None or run["server"]["cpu"] + run["client"]["cpu"] < FULL * cores:
        return None
    front, client = run["server"]["front_cpu"], run["client"]["cpu"]
    used = {"front": front, "model": run["server"]["cpu"] - front, "clients": client}
    shares = ", ".join(f"{name} {share:.2f}" for name, share in used.items())
    return max(used, key=used.__getitem__), f"all {cores} cores were busy: {shares} (model: its worker processes)"


def _others(run: Mapping[str, Any], cores: int) -> tuple[str, str] | None:
    why = terminal.others(run, cores)
    return None if why is None else ("unknown", why)


def _by_exclusion(run: Mapping[str, Any], still_grows: bool | None) -> tuple[str, str]:
    if still_grows is None:
        return "unknown", "nothing was full; one load does not show whether the rate still grows: sweep over more"
    if still_grows:
        return "unknown", "the rate still grew, and this is the highest load; sweep further"
    busy = run["server"]["model_busy"]
    if busy is None:
        return "unknown", "the rate grew no more; the server reports nothing about its model"
    return (
        "front",
        f"the rate grew no more, though the model computed only {busy:.0%} of the time and the client "
        f"{run['client']['cpu']:.0%} of a core: what is left is the front, or the network",
    )


def _batches(run: Mapping[str, Any]) -> str:
    sizes = run["batch_sizes"]
    if not sizes:
        return ""
    mean = sum(int(size) * count for size, count in sizes.items()) / sum(sizes.values())
    return f"; a request was in a batch of {mean:.1f} items on average"
