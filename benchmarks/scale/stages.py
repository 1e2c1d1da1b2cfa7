"""Models that use each other: what one more deployment on the way costs, and what it costs with Ray Serve."""

import load
import servers
from scenarios import RAW, Figures, Settings, Target, ratio
from servers import HERE, Running

from scale import ray_serve
from scale.part import Part

OURS, RAY, FAST = "jitney", ray_serve.DEFAULTS, ray_serve.FAST
BODY = "size:10000"
START_S = 90


def _start(variant: str, route: str) -> Running:
    port = servers.free_port()
    if variant == OURS:
        running = Running(OURS, servers.serving(HERE / "apps" / "stages.py", port), port, f"/{route}", {})
    else:
        command = [str(ray_serve.python()), str(ray_serve.APPS / "ray_stages.py"), str(port)]
        running = Running(variant, command, port, f"/{route}", ray_serve.settings(variant))
    running.wait_ready(b"x", RAW, START_S)
    return running


def _part(name: str, route: str, connections: int, variants: tuple[str, ...] = (OURS, RAY, FAST)) -> Part:
    def measure(variant: str, settings: Settings) -> dict[str, float]:
        running = _start(variant, route)
        try:
            load.wrk(running.url, connections, settings.seconds, RAW, BODY)  # Ray Serve takes seconds to become fast
            figures = load.wrk(running.url, connections, settings.seconds, RAW, BODY)
            return figures | {"resident_mb": running.resident_mb()}
        finally:
            running.stop()

    return Part(f"stages: {name}", variants, measure, _why_not)


def _why_not(variant: str) -> str:
    return "" if variant == OURS else ray_serve.why_not()


TWO = _part("10 KB through two, 64 connections", "two_stages", 64)
ENSEMBLE = _part("four models of 20 ms at once", "ensemble", 1)
ALONE = _part("one model of 20 ms", "first", 1, (OURS,))
PARTS = [TWO, ENSEMBLE, ALONE]


def _above_slowest(figures: Figures) -> float | None:
    together, alone = figures.get(ENSEMBLE.name, {}).get(OURS), figures.get(ALONE.name, {}).get(OURS)
    return together["p50_ms"] - alone["p50_ms"] if together and alone else None


TARGETS = [
    Target("two stages / Ray Serve with its fast settings", 10, False, ratio(TWO.name, "rps", FAST)),
    Target("two stages / Ray Serve", 10, False, ratio(TWO.name, "rps", RAY)),
    Target("p50 of an ensemble of four above one of its models, ms", 1, True, _above_slowest),
]
