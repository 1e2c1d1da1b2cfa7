"""Replicas of different speed: four, of which one takes ten times as long, under a steady load."""

import asyncio

import load
from scenarios import Settings, Target
from servers import HERE

from scale.part import Part
from scale.places import Site

EQUAL, UNEQUAL = "four alike", "one ten times slower"
BATCH_S, BATCH, FACTOR = 0.05, 8, 10
LOAD = 0.5
"""The share of what all replicas together can answer."""
LEARNS_FOR_S = 5


def _measured(variant: str, settings: Settings) -> dict[str, float]:
    replicas = 3 + (1 if variant == EQUAL else 1 / FACTOR)
    rate = LOAD * replicas * BATCH / BATCH_S
    with Site(3, {"BENCH_BATCH_S": str(BATCH_S)}) as site:
        arguments = ("--set", "slow_batches.replicas=4", "--set", "slow_batches.spread=false")
        front = site.front(str(HERE / "apps" / "slow_batches.py"), "/slow_batches", *arguments)
        site.agent(1, "--places", "3")
        site.agent(2, environment={} if variant == EQUAL else {"BENCH_FACTOR": str(FACTOR)})
        front.wait()
        with site.machines[0].inside():
            asyncio.run(load.open_loop(front.port, front.path, rate, LEARNS_FOR_S))
            offered = asyncio.run(load.open_loop(front.port, front.path, rate, settings.seconds, seed=2))
    quantiles = {f"p{q}_ms": load.quantile(offered.answered_ms, q / 100) for q in (50, 95, 99)}
    mean_ms = sum(offered.answered_ms) / max(len(offered.answered_ms), 1)
    answered = {"rps": len(offered.answered_ms) / settings.seconds, "mean_ms": mean_ms}
    return answered | quantiles | {"refused": len(offered.refused_ms), "broken": offered.broken}


PARTS = [Part("unequal replicas at half of their load", (EQUAL, UNEQUAL), _measured)]
TARGETS: list[Target] = []
