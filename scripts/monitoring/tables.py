"""What the tables of the server say: which metrics there are, and what causes each outcome."""

from functools import cache

from jitney import _core

HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")
LATER = frozenset(
    {
        "jitney_gpu_energy_joules_total",
        "jitney_gpu_memory_total_bytes",
        "jitney_gpu_memory_used_bytes",
        "jitney_gpu_power_watts",
        "jitney_gpu_temperature_celsius",
        "jitney_gpu_utilization_ratio",
        "jitney_worker_gpu_memory_bytes",
    }
)
"""Metrics that a query may name although the table does not have them yet. Such queries are left out."""


@cache
def labels() -> dict[str, frozenset[str]]:
    """Return the labels of each series by its name in a query; a histogram has three of them."""
    found: dict[str, frozenset[str]] = {}
    for name, kind, names, _ in _core.metrics():
        if kind == "histogram":
            found |= {name + part: frozenset(names) for part in HISTOGRAM_PARTS}
            found[f"{name}_bucket"] |= {"le"}
        else:
            found[name] = frozenset(names)
    return found


def metric(series: str) -> str:
    """Return the name that the table has for a series of a query."""
    names = {row[0] for row in _core.metrics()}
    return next((series.removesuffix(part) for part in HISTOGRAM_PARTS if series.removesuffix(part) in names), series)


def outcomes(*causes: str) -> str:
    """Return a pattern of the outcomes with one of these causes: `load`, `model` … of the column `blame`."""
    found = [row[0] for row in _core.outcomes() if row[5] in causes]
    assert found, f"no outcome has the cause {' or '.join(causes)}"
    return "|".join(found)
