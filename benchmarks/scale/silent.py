"""A machine with half of the replicas goes silent under load: what is lost, and how long the others wait."""

import asyncio
import json
import time
from dataclasses import dataclass, field

import load
from scenarios import Settings, Target, figure

from scale.cluster import FAST, OURS, RAY, ready_after, serving, why_not
from scale.part import Part

REPLICAS, BATCH_S, CLIENTS = 4, 0.02, 32
BEFORE_S, SILENT_S = 5, 12
LOOKED_AT_S = 10
"""The quantile is that of requests that began so long after the machine went silent, or less."""
GIVES_UP_S = 30


@dataclass
class Seen:
    """What the clients saw."""

    answers: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When a request began, and how long it took, in seconds."""
    lost: int = 0
    wrong: int = 0


async def _client(port: int, path: str, name: int, end: float, seen: Seen) -> None:
    connection, count = load.Connection(port), 0
    while (began := time.monotonic()) < end:
        text, count = f"client {name} request {count}", count + 1
        body = json.dumps({"text": text}).encode()
        try:
            status, answer = await asyncio.wait_for(connection.post(path, body), GIVES_UP_S)
        except (*load.BROKEN, TimeoutError):
            connection.close()
            seen.lost += 1
            continue
        if status == 200:
            seen.answers.append((began, time.monotonic() - began))
            seen.wrong += not load.is_own(answer, text)
        else:
            seen.lost += 1
    connection.close()


def _measured(variant: str, _: Settings) -> dict[str, float]:
    with serving(variant, REPLICAS, BATCH_S) as served:
        if variant != OURS:
            ready_after(served, REPLICAS)
        machine, port, path = served.machines[2], served.running.port, served.running.path
        seen, cut_at = Seen(), [0.0]

        async def crowd() -> None:
            end = time.monotonic() + BEFORE_S + SILENT_S
            clients = [asyncio.create_task(_client(port, path, name, end, seen)) for name in range(CLIENTS)]
            await asyncio.sleep(BEFORE_S)
            cut_at[0] = time.monotonic()
            await asyncio.to_thread(machine.unplug)
            await asyncio.gather(*clients)

        with served.running_on():
            asyncio.run(crowd())
    after = [took * 1e3 for began, took in seen.answers if cut_at[0] - 1 <= began <= cut_at[0] + LOOKED_AT_S]
    rest = [took * 1e3 for began, took in seen.answers if began < cut_at[0] - 1]
    return {
        "p50_ms": load.quantile(after, 0.5),
        "p99_ms": load.quantile(after, 0.99),
        "max_ms": max(after, default=0.0),
        "p99_before_ms": load.quantile(rest, 0.99),
        "answered": len(seen.answers),
        "lost": seen.lost,
        "wrong": seen.wrong,
    }


SILENT = Part("a machine goes silent under load", (OURS, RAY, FAST), _measured, why_not)
PARTS = [SILENT]


TARGETS = [
    Target("requests lost when a machine goes silent", 0, True, figure(SILENT.name, "lost", OURS)),
    Target("p99 of the ten seconds after it, ms", 3000, True, figure(SILENT.name, "p99_ms", OURS)),
]
