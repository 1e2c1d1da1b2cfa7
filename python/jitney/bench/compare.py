"""Two measurements side by side: what differs, and what is noise. The rule is in docs/bench.md."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from jitney.bench.document import SUMMARY, figure
from jitney.bench.terminal import ms, table
from jitney.errors import ConfigError

ENOUGH_RUNS = 3
"""From here on the spread between runs is known; below it only that within a run."""
SMALLEST, SMALLEST_WITHIN = 0.02, 0.10
"""Differences below this are not claimed: with enough runs, and from the intervals of fewer."""
# Student's t, two-sided 99 %, by degrees of freedom 1 to 30; beyond them the normal distribution's.
_T99 = (
    63.66, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947,
    2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
)  # fmt: skip
_T99_NORMAL = 2.576


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure on both sides."""

    name: str
    left: Sequence[float]
    right: Sequence[float]
    least: float
    """Below this share a difference is not claimed."""

    @property
    def ratio(self) -> float | None:
        """Right over left, of geometric means."""
        if not self.left or not self.right:
            return None
        return math.exp(_mean_log(self.right) - _mean_log(self.left))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 99 % interval of the ratio, by Welch's t on logarithms; None with too few samples."""
        left, right = _logs(self.left), _logs(self.right)
        if len(left) < 2 or len(right) < 2:
            return None
        parts = [statistics.variance(side) / len(side) for side in (left, right)]
        error = math.sqrt(sum(parts))
        if error == 0:
            width = 0.0
        else:
            freedom = sum(parts) ** 2 / sum(
                part**2 / (len(side) - 1) for part, side in zip(parts, (left, right), strict=True)
            )
            width = error * (_T99[int(freedom) - 1] if freedom < len(_T99) + 1 else _T99_NORMAL)
        middle = statistics.fmean(right) - statistics.fmean(left)
        return math.exp(middle - width), math.exp(middle + width)

    @property
    def is_noise(self) -> bool:
        """Whether nothing can be claimed."""
        ratio, interval = self.ratio, self.interval
        if ratio is None or interval is None:
            return True
        return interval[0] <= 1 <= interval[1] or max(ratio, 1 / ratio) < 1 + self.least

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.ratio is None or self.interval is None:
            return "too little was measured to say"
        if self.is_noise:
            return "noise"
        is_more, is_rate = self.ratio > 1, self.name.startswith("rate")
        return f"{'better' if is_more == is_rate else 'worse'}: {_times(self.ratio)}"


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Difference]:
    """Compare every figure of the summary."""
    for document in (left, right):
        if document["kind"] != "load":
            raise ConfigError(f"a {document['kind']} cannot be compared; measure one load with --json")
    has_runs = min(len(left["runs"]), len(right["runs"])) >= ENOUGH_RUNS
    least = SMALLEST if has_runs else SMALLEST_WITHIN
    return [
        Difference(name, _samples(left, name, has_runs), _samples(right, name, has_runs), least) for name in SUMMARY
    ]


def _samples(document: Mapping[str, Any], name: str, has_runs: bool) -> list[float]:
    if has_runs:
        values = [figure(run, SUMMARY[name]) for run in document["runs"]]
    else:
        values = [point[name] for run in document["runs"] for point in run["series"]]
    return [value for value in values if value]


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _mean_log(values: Sequence[float]) -> float:
    return statistics.fmean(_logs(values))


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times" if ratio >= 2 or ratio <= 0.5 else f"{ratio - 1:+.1%}"


def told(left: Mapping[str, Any], right: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Write the comparison as lines."""
    found = differences(left, right)
    lines = table([("", f"{names[0]:>28}  {names[1]:>28}  {'ratio':>6}  99 % interval"), *(_row(one) for one in found)])
    counts = [len(document["runs"]) for document in (left, right)]
    if min(counts) < ENOUGH_RUNS:
        lines.append(
            f"from the intervals within {counts[0]} and {counts[1]} run(s): the spread between runs is not known, so "
            f"less than {SMALLEST_WITHIN:.0%} is called noise; --repeat {ENOUGH_RUNS} or more on both sides tells more"
        )
    for name, here, there in unlike(left, right):
        lines.append(f"not alike: {name} is {here} and {there}")
    for name, document in zip(names, (left, right), strict=True):
        if any(run["client"]["is_limit"] for run in document["runs"]):
            lines.append(f"warning: in {name} the client was the limit")
    return lines


def _row(one: Difference) -> tuple[str, str]:
    interval = f"{one.interval[0]:.3f} to {one.interval[1]:.3f}" if one.interval else ""
    ratio = f"{one.ratio:.3f}" if one.ratio else ""
    sides = "  ".join(f"{_spread(one.name, side):>28}" for side in (one.left, one.right))
    return one.name.removesuffix("_ms").removesuffix("_per_s"), f"{sides}  {ratio:>6}  {interval:16}  {one.verdict}"


def _spread(name: str, values: Sequence[float]) -> str:
    if not values:
        return "nothing"

    def show(value: float) -> str:
        return ms(value) if name.endswith("_ms") else f"{value:,.0f}/s"

    return f"{show(statistics.median(values))} ({show(min(values))} to {show(max(values))})"


def unlike(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[tuple[str, object, object]]:
    """Return what else differs between the measurements: (name, left, right)."""
    ours, theirs = ({**_flat(one["plan"]), **_flat(one["machine"]), **_flat(one["versions"])} for one in (left, right))
    # Whoever compares knows which servers; a port is another one each time.
    names = [name for name in ours | theirs if name not in ("url", "target", "repeat", "inputs.source")]
    return [(name, ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= _flat(cast("dict[str, Any]", value), f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found
