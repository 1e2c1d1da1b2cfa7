"""What the tables of the server say: which metrics there are, and what causes each outcome."""

from functools import cache

from jitney import _core

HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")
PLANNED = frozenset({"draining", "scaled_to_zero"})
"""Outcomes of what an operator asked for: a shutdown, a deployment without replicas. They do not count as failed."""


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
    """Return a pattern of the outcomes with one of these causes: `load`, `model` … of the column `blame`.

    Planned ones are left out.
    """
    found = [row[0] for row in _core.outcomes() if row[5] in causes and row[0] not in PLANNED]
    assert found, f"no outcome has the cause {' or '.join(causes)}"
    return "|".join(found)
