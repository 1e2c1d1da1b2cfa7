"""What stands for the repetitions of one measurement: one rule for `make bench`, the stories and the policies."""

import statistics
from collections.abc import Iterable

MUST_NOT_HAPPEN = {"wrong", "missing", "mixed", "failed", "broken"}
"""Figures of which one is too many: two good repetitions do not make up for the one in which they happened."""


def summary(runs: Iterable[dict[str, float]]) -> dict[str, float]:
    """The median of each figure; of what must not happen the most."""
    listed = list(runs)
    return {
        name: (max if name in MUST_NOT_HAPPEN else statistics.median)(run[name] for run in listed) for name in listed[0]
    }
