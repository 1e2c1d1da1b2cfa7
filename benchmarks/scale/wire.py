"""What the way to another machine costs: a model on the machine of the front, and on another one over TCP with TLS."""

from scenarios import BODY, JSON, ONE_MB, RAW, Figures, Settings, Target, between
from servers import HERE

from scale.part import Part
from scale.places import Site

LOCAL, REMOTE = "same machine", "another machine"
MODELS = {"noop": ("no-op", JSON, BODY), "raw": ("1 MB raw bodies", RAW, ONE_MB)}


def _measured(model: str, connections: int, variant: str, settings: Settings) -> dict[str, float]:
    _, content_type, body = MODELS[model]
    with Site(2) as site:
        front = site.front(f"{HERE}/apps/noop.py:{model}", f"/{model}", is_remote=variant == REMOTE)
        if variant == REMOTE:
            site.agent(1)
        front.wait()
        front.wrk(connections, 1, content_type, body)
        cpu = front.front_cpu_s()
        figures = front.wrk(connections, settings.seconds, content_type, body)
        return figures | {"front_cpu_us": (front.front_cpu_s() - cpu) / max(figures["requests"], 1) * 1e6}


def _part(model: str, connections: int) -> Part:
    name = f"workers elsewhere: {MODELS[model][0]}, {connections} connection{'s' if connections > 1 else ''}"
    return Part(name, (LOCAL, REMOTE), lambda variant, settings: _measured(model, connections, variant, settings))


ONE, MANY, MEGABYTE = _part("noop", 1), _part("noop", 64), _part("raw", 8)
PARTS = [ONE, MANY, MEGABYTE]


def _p50_above(figures: Figures) -> float | None:
    found = figures.get(ONE.name, {})
    return found[REMOTE]["p50_ms"] - found[LOCAL]["p50_ms"] if {LOCAL, REMOTE} <= found.keys() else None


TARGETS = [
    Target("no-op of a worker elsewhere / on one machine", 0.8, False, between(MANY.name, "rps", REMOTE, LOCAL)),
    Target("p50 of a worker elsewhere above one machine, ms", 0.1, True, _p50_above),
    Target("1 MB of a worker elsewhere / on one machine", 0.6, False, between(MEGABYTE.name, "rps", REMOTE, LOCAL)),
]
