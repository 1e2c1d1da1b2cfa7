"""What a batch of n takes: measured from the examples, fitted by a line, and drawn in the terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from jitney.worker.warmup import alone, if_it_fits, sizes

RUNS = 3
"""Runs of each size; their median counts, so that one stall of the machine changes nothing."""
WIDTH = 40
"""Columns of the longest bar."""


@dataclass(frozen=True, slots=True)
class Line:
    """`launch_s + item_s * n`, the line of least squares through what was measured; neither is below 0."""

    launch_s: float
    item_s: float

    def seconds(self, size: int) -> float:
        """Return what a batch of `size` takes by the line."""
        return self.launch_s + self.item_s * size


def measure(run: Callable[[int], float], most: int) -> list[tuple[int, float]]:
    """Run each size `RUNS` times; `run` returns seconds. Returns (size, median seconds) of those that fit."""

    def middle(size: int) -> float:
        return median(run(size) for _ in range(RUNS))

    curve = [(1, alone(lambda: middle(1)))]
    for size in sizes(most)[1:]:
        took_s = if_it_fits(lambda size=size: middle(size))
        if took_s is None:
            break
        curve.append((size, took_s))
    return curve


def fit(curve: Sequence[tuple[int, float]]) -> Line:
    """Fit the line; with one size seen, half of its time counts as the launch's."""
    count = len(curve)
    items = sum(size for size, _ in curve) / count
    seconds = sum(took for _, took in curve) / count
    spread = sum((size - items) ** 2 for size, _ in curve)
    slope = sum((size - items) * (took - seconds) for size, took in curve) / spread if spread else seconds / items / 2
    item_s = min(max(slope, 0.0), seconds / items)
    return Line(max(seconds - item_s * items, 0.0), item_s)


def drawn(curve: Sequence[tuple[int, float]]) -> list[str]:
    """Return the lines of a table with a bar per size; a bar's length is its time."""
    longest = max(took for _, took in curve) or 1.0
    rows = ["    size    batch ms     each ms   items/s"]
    for size, took in curve:
        each, rate = took / size, size / took if took else 0.0
        bar = "█" * max(1, round(WIDTH * took / longest))
        rows.append(f"    {size:4} {took * 1e3:11.3f} {each * 1e3:11.4f} {rate:9.0f}  {bar}")
    return rows


def summary_lines(curve: Sequence[tuple[int, float]]) -> list[str]:
    """Say what the line means for the choice of a batch size."""
    line = fit(curve)
    best, best_s = max(curve, key=lambda one: one[0] / one[1] if one[1] else 0.0)
    rows = [f"  a batch of n takes about {line.launch_s * 1e3:.3f} ms + {line.item_s * 1e3:.4f} ms · n"]
    if best_s:
        rows.append(f"  most items per second in batches of {best}: {best / best_s:.0f}")
    off = [(size, took / line.seconds(size) - 1) for size, took in curve if line.seconds(size) > 0]
    worst, share = max(off, key=lambda one: abs(one[1]), default=(0, 0.0))
    if abs(share) > 0.25:
        rows.append(
            f"  the line does not hold: a batch of {worst} is {share:+.0%} off it; `auto` knows each size's own time"
        )
    return rows
