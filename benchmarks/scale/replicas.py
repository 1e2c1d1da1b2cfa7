"""Replicas on the nodes of a Ray cluster whose models use no core: how much of the ceiling is reached."""

import load
from scenarios import BODY, JSON, Figures, Settings, Target

from scale.cluster import FAST, OURS, RAY, ready_after, serving, why_not
from scale.part import Part

BATCH_S, BATCH = 0.2, 8
COUNTS = (1, 4, 16, 64)
CLIENTS = 3 * BATCH
"""Connections for each replica: one batch runs, one waits, one is on its way."""


def _measured(replicas: int, variant: str, settings: Settings) -> dict[str, float]:
    with serving(variant, replicas, BATCH_S) as served:
        if variant != OURS:
            ready_after(served, replicas)
        with served.running_on():
            load.wrk(served.running.url, CLIENTS * replicas, settings.seconds, JSON, BODY)
            figures = load.wrk(served.running.url, CLIENTS * replicas, 2 * settings.seconds, JSON, BODY)
        of_ceiling = figures["rps"] / (replicas * BATCH / BATCH_S)
        return figures | {"of_ceiling": of_ceiling, "resident_mb": served.memory_mb()}


def _part(replicas: int) -> Part:
    measure = lambda variant, settings: _measured(replicas, variant, settings)  # noqa: E731 - it is one expression
    return Part(f"replicas on Ray: {replicas}", (OURS, RAY, FAST), measure, why_not)


PARTS = [_part(count) for count in COUNTS]


def _least(figures: Figures) -> float | None:
    found = [figures[part.name][OURS]["of_ceiling"] for part in PARTS if OURS in figures.get(part.name, {})]
    return min(found, default=None)


TARGETS = [Target("R replicas on Ray, 1 to 64 / R times one, the least", 0.95, False, _least)]
