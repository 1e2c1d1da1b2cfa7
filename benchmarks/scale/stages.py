"""Models that use each other: what one more deployment on the way costs, and what it costs with Ray Serve."""

import load
import servers
from peers.catalog import SERVERS
from peers.environments import is_installed, python_of
from scenarios import RAW, Figures, Settings, Target, ratio
from servers import HERE, Running

from scale.part import Part

OURS, RAY, FAST = "jitney", "Ray Serve", "Ray Serve, fast settings"
FLAGS = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}
"""What its documentation advises for throughput."""
BODY = "size:10000"
START_S = 90


def _start(variant: str, route: str) -> Running:
    port = servers.free_port()
    if variant == OURS:
        running = Running(OURS, servers.serving(HERE / "apps" / "stages.py", port), port, f"/{route}", {})
    else:
        command = [str(python_of(SERVERS["ray"])), str(HERE / "scale" / "served" / "ray_stages.py"), str(port)]
        environment = {"RAY_AUTH_MODE": "disabled", **(FLAGS if variant == FAST else {})}
        running = Running(variant, command, port, f"/{route}", environment)
    running.wait_ready(b"x", RAW, START_S)
    return running


def _part(name: str, route: str, connections: int, variants: tuple[str, ...] = (OURS, RAY, FAST)) -> Part:
    def measure(variant: str, settings: Settings) -> dict[str, float]:
        running = _start(variant, route)
        try:
            load.wrk(running.url, connections, 1, RAW, BODY)
            figures = load.wrk(running.url, connections, settings.seconds, RAW, BODY)
            return figures | {"resident_mb": running.resident_mb()}
        finally:
            running.stop()

    return Part(f"stages: {name}", variants, measure, _why_not)


def _why_not(variant: str) -> str:
    is_there = variant == OURS or is_installed(SERVERS["ray"])
    return "" if is_there else "Ray Serve is not installed (make peers PEERS=ray)"


TWO = _part("10 KB through one more deployment, 64 connections", "two_stages", 64)
ENSEMBLE = _part("four models of 20 ms on one input, 1 connection", "ensemble", 1)
ALONE = _part("one model of 20 ms, 1 connection", "first", 1, (OURS,))
PARTS = [TWO, ENSEMBLE, ALONE]


def _above_slowest(figures: Figures) -> float | None:
    together, alone = figures.get(ENSEMBLE.name, {}).get(OURS), figures.get(ALONE.name, {}).get(OURS)
    return together["p50_ms"] - alone["p50_ms"] if together and alone else None


TARGETS = [
    Target("two stages / Ray Serve with its fast settings", 10, False, ratio(TWO.name, "rps", FAST)),
    Target("two stages / Ray Serve", 10, False, ratio(TWO.name, "rps", RAY)),
    Target("p50 of an ensemble of four above one of its models, ms", 1, True, _above_slowest),
]
