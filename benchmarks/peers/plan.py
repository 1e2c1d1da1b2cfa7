"""What is measured within a budget: rules without clock or I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from peers.catalog import Server
from peers.loads import STREAMS

POINTS = ("closed 1", "closed 64", "closed 256", "open 60%", "open 150%")
# Of answers in parts: a server that computes batches to their end answers too rarely to know its capacity.
STREAM_POINTS = ("closed 1", "closed 16", "closed 64")
STREAM_SECONDS = 15
# At these all servers are asked for the same: a share of what one can do. They take more than the ninety minutes.
SAME = {"same slowest": min, "same best": max}
SAME_SHARE = 0.6
TUNED_AT = "closed 64"
# The load that says most about a batcher's settings, if there is no time to tune on each.
TUNED_ON = "sleepy"
SHORTER = "measurements of"
WARM_S = 0.7
# A server that is started for each of its turns has learned nothing yet.
WARM_RESTARTED_S = 2.0
# Seconds that a measurement takes in addition to its own: processes of the generator, connections, memory.
OVERHEAD_S = 0.5


@dataclass(frozen=True)
class Plan:
    """What is measured, and for how long."""

    loads: tuple[str, ...]
    points: tuple[str, ...] = POINTS
    repetitions: int = 3
    seconds: float = 5
    tune_seconds: float = 3
    tuned_on: str | None = None
    """The one load that settings are tuned on, for all loads; without it each load is tuned for itself."""
    left_out: tuple[str, ...] = ()
    """One sentence for the page about each thing that the budget did not allow."""

    def turns(self) -> list[tuple[str, ...]]:
        """The points of each turn of a server: what all are asked for is known when each has been asked for its own."""
        own = tuple(point for point in self.points if point not in SAME)
        same = tuple(point for point in self.points if point in SAME)
        return [turn for turn in (own, same) if turn]


def tuning_load(plan: Plan, server: Server, load: str) -> str:
    """Which load decides about the settings that a server has in `load`."""
    # Settings of whole answers say nothing about those of answers in parts.
    is_of_kind = plan.tuned_on in server.loads and load not in STREAMS
    return plan.tuned_on if plan.tuned_on and is_of_kind else load


def estimate_s(plan: Plan, servers: Iterable[Server], tuned: frozenset[tuple[str, str]] = frozenset()) -> float:
    """How long a plan takes. `tuned`: (load, server) that need no tuning any more."""
    total = 0.0
    for server in servers:
        known = {load for load, name in tuned if name == server.name}
        for load in (load for load in plan.loads if load in server.loads):
            tune = tuning_load(plan, server, load)
            if len(server.cells) > 1 and tune not in known:
                known.add(tune)
                total += len(server.cells) * (server.start_s + WARM_S + plan.tune_seconds + OVERHEAD_S)
            before = server.start_s + WARM_RESTARTED_S if server.restarts else WARM_S
            turns = len(plan.turns()) * before + len(plan.points) * (plan.seconds + OVERHEAD_S)
            total += server.start_s + plan.repetitions * turns
    return total


def rungs(asked: Plan) -> list[Plan]:
    """Every plan, from the complete one to the smallest useful one. The least important part is left out first."""
    ladder = [asked]

    def step(text: str, **changes: Any) -> None:
        last = ladder[-1]
        ladder.append(replace(last, left_out=(*last.left_out, text), **changes))

    def shorten(seconds: float) -> None:
        if seconds < asked.seconds:
            kept = tuple(line for line in ladder[-1].left_out if not line.startswith(SHORTER))
            tune = min(asked.tune_seconds, max(1.0, seconds - 0.5))
            said = (*kept, f"{SHORTER} {seconds:g} s")
            ladder.append(replace(ladder[-1], seconds=seconds, tune_seconds=tune, left_out=said))

    shorten(3)
    shorten(2)
    if TUNED_ON in asked.loads:
        step(f"settings tuned on the load `{TUNED_ON}` alone, for all loads", tuned_on=TUNED_ON)
    shorten(1.5)
    for point in ("same best", "same slowest", "open 150%", "open 60%"):
        if point in ladder[-1].points:
            points = tuple(name for name in ladder[-1].points if name != point)
            step(f"no point `{point}`", points=points)
    for load in reversed(asked.loads[1:]):
        step(f"no load `{load}`", loads=tuple(name for name in ladder[-1].loads if name != load))
    while ladder[-1].repetitions > 1:
        left = ladder[-1].repetitions - 1
        step(f"{left} repetition{'s' if left > 1 else ''}", repetitions=left)
    return ladder


def choose(
    asked: Plan, servers: Iterable[Server], budget_s: float, tuned: frozenset[tuple[str, str]] = frozenset()
) -> Plan:
    """The fullest plan that fits the budget; the least one if none does."""
    listed, ladder = list(servers), rungs(asked)
    return next((plan for plan in ladder if estimate_s(plan, listed, tuned) <= budget_s), ladder[-1])
