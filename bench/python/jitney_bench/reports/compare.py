"""Two measurements side by side: what differs, and what is noise. The rule is in docs/operations/measuring.md."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from jitney.errors import ConfigError

from jitney_bench.reports.document import PARTS, SUMMARY, figure
from jitney_bench.reports.terminal import ms, table

ENOUGH_RUNS = 3
"""From here on the spread between runs is known; below it only that within a run."""
SMALLEST, SMALLEST_WITHIN = 0.02, 0.10
"""Differences below this are not claimed: with enough runs, and from the intervals of fewer."""
ERRORS_APART = 0.001
"""If the shares of errors differ by more, latencies are of different requests: a tenth of what is above p99."""
FIGURES = SUMMARY | PARTS
TIMES = tuple(name for name in FIGURES if name.endswith("_ms"))
SHORTEST_MS = 0.001
"""The resolution of the histograms."""
# Student's t, two-sided 99 %, by degrees of freedom 1 to 30; beyond them the normal distribution's.
_T99 = (
    63.66, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947,
    2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
)  # fmt: skip
_T99_NORMAL = 2.576
MOST_RUNS = 100
"""If more runs than this are needed to show a difference, no number of runs is proposed."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure on both sides."""

    name: str
    left: Sequence[float]
    right: Sequence[float]
    least: float
    """Below this share a difference is not claimed."""
    not_judged: str | None = None
    """Why nothing follows from it: the sides were asked for different things, or answered different requests."""
    has_runs: bool = False
    """Whether the samples are runs. Otherwise they are the intervals of fewer runs."""

    @property
    def is_rate(self) -> bool:
        """Rates add up, and more of them is better; times do neither."""
        return self.name not in TIMES

    @property
    def ratio(self) -> float | None:
        """Right over left: of arithmetic means for rates, of geometric ones for times."""
        if not self.left or not self.right:
            return None
        if self._without_answers:
            return 0.0 if statistics.fmean(self.left) else None
        return math.exp(self._middle(self.right) - self._middle(self.left))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 99 % interval of the ratio, by Welch's t on the logarithms of the means; None if there is none."""
        if min(len(self.left), len(self.right)) < 2 or self._without_answers:
            return None
        sides = (self.left, self.right)
        width = _half_width([(self._variance(side), len(side)) for side in sides])
        middle = self._middle(self.right) - self._middle(self.left)
        return math.exp(middle - width), math.exp(middle + width)

    @property
    def is_noise(self) -> bool:
        """Whether nothing can be claimed."""
        if self.not_judged is not None:
            return True
        if self._without_answers and min(len(self.left), len(self.right)) > 1:
            return len(self._without_answers) == 2
        ratio, interval = self.ratio, self.interval
        if ratio is None or interval is None:
            return True
        return interval[0] <= 1 <= interval[1] or max(ratio, 1 / ratio) < 1 + self.least

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.not_judged is not None:
            return f"not judged: {self.not_judged}"
        if min(len(self.left), len(self.right)) < 2:
            return "too little was measured to say"
        if self._without_answers:
            better_or_worse = {"left": "better: nothing was answered before", "right": "worse: nothing was answered"}
            return better_or_worse.get(" ".join(self._without_answers), "nothing was answered")
        if self.ratio is None or self.is_noise:
            return f"noise{self._advice}"
        is_more = self.ratio > 1
        return f"{'better' if is_more == self.is_rate else 'worse'}: {_times(self.ratio)}"

    @property
    def runs_needed(self) -> int | None:
        """Runs per side that would show a difference of this size; None if more runs would change nothing.

        It is the smallest number whose interval is narrow enough if the runs vary as they did, MOST_RUNS + 1 at most.
        """
        ratio, interval = self.ratio, self.interval
        if not self.has_runs or not self.is_noise or self.not_judged is not None or not ratio or interval is None:
            return None
        smallest = math.log(1 + self.least)
        if math.log(interval[1] / interval[0]) / 2 <= smallest:
            return None
        size = max(abs(math.log(ratio)), smallest)
        variances = [self._variance(side) for side in (self.left, self.right)]
        for runs in range(min(len(self.left), len(self.right)) + 1, MOST_RUNS + 1):
            if _half_width([(variance, runs) for variance in variances]) < size:
                return runs
        return MOST_RUNS + 1

    @property
    def _advice(self) -> str:
        """Say how many runs would show a difference, if more of them can."""
        runs = self.runs_needed
        if runs is None:
            return ""
        if runs > MOST_RUNS:
            return f"; more than {MOST_RUNS} runs would be needed"
        return f"; --repeat {runs} on both sides may show a difference"

    @property
    def _without_answers(self) -> list[str]:
        """Sides whose rate is 0 throughout: they have no logarithm, and need none."""
        sides = {"left": self.left, "right": self.right}
        return [name for name, side in sides.items() if self.is_rate and side and not any(side)]

    def _middle(self, values: Sequence[float]) -> float:
        """Return the logarithm of the mean. That of rates is the rate of the whole, stalls and all."""
        return math.log(statistics.fmean(values)) if self.is_rate else statistics.fmean(_logs(values))

    def _variance(self, values: Sequence[float]) -> float:
        """Return the variance of the logarithms; of rates to the first order, because one of them may be 0."""
        if self.is_rate:
            return statistics.variance(values) / statistics.fmean(values) ** 2
        return statistics.variance(_logs(values))


def _half_width(sides: Sequence[tuple[float, int]]) -> float:
    """Return half the 99 % interval of a difference of means, by Welch's t, from (variance, samples) of both sides."""
    parts = [variance / samples for variance, samples in sides]
    if sum(parts) == 0:
        return 0.0
    freedom = sum(parts) ** 2 / sum(part**2 / (samples - 1) for part, (_, samples) in zip(parts, sides, strict=True))
    return math.sqrt(sum(parts)) * (_T99[int(freedom) - 1] if freedom < len(_T99) + 1 else _T99_NORMAL)


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Difference]:
    """Compare every figure of the summary."""
    for document in (left, right):
        if document["kind"] != "load":
            raise ConfigError(f"a {document['kind']} cannot be compared; measure one load with --json")
    has_runs = _has_runs(left, right)
    of_all = None if _are_loads_alike(left, right) else "the loads differ"
    of_times = of_all or (None if _are_errors_alike(left, right) else "the errors differ")
    if not has_runs and left["plan"].get("interval_s") != right["plan"].get("interval_s"):
        # The p99 of an interval is of as many answers as it holds.
        of_times = of_times or "the intervals are not of one length"
    return [
        Difference(
            name,
            _samples(left, name, has_runs),
            _samples(right, name, has_runs),
            SMALLEST if has_runs else SMALLEST_WITHIN,
            of_times if name in TIMES else of_all,
            has_runs,
        )
        for name in (FIGURES if _are_streams(left, right) else SUMMARY)
    ]


def _are_streams(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return all(document["plan"].get("stream") is not None for document in (left, right))


def _has_runs(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return min(len(left["runs"]), len(right["runs"])) >= ENOUGH_RUNS


def _samples(document: Mapping[str, Any], name: str, has_runs: bool) -> list[float]:
    """Return what there is of a figure: a rate of 0 is one too, and only what was not answered has no latency."""
    if has_runs:
        values = [figure(run, FIGURES[name]) for run in document["runs"]]
    else:
        # What is left of the window may be a short one, in which nothing need have ended.
        whole = 0.99 * document["plan"].get("interval_s", 0.0)
        series = [point for run in document["runs"] for point in run["series"]]
        values = [point[name] for point in series if point["to_s"] - point["from_s"] >= whole]
    return [value for value in values if value is not None]


def _errors(document: Mapping[str, Any]) -> float:
    """Return the share of all requests that was refused or failed."""
    requests = [run["requests"] for run in document["runs"]]
    due = sum(one["due"] for one in requests)
    return sum(one["refused"] + one["failed"] for one in requests) / max(due, 1)


def _are_errors_alike(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return abs(_errors(left) - _errors(right)) <= ERRORS_APART


def _are_loads_alike(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Say whether both were asked for the same: who is asked for more answers more, and later."""
    # How many connections may be opened does not change the load.
    ours, theirs = (
        {
            **one["plan"]["load"],
            "connections": None,
            "items": one["plan"].get("items_per_request"),
            "stream": one["plan"].get("stream"),
        }
        for one in (left, right)
    )
    return ours == theirs


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(max(value, SHORTEST_MS)) for value in values]


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times" if ratio >= 2 or ratio <= 0.5 else f"{ratio - 1:+.1%}"


def comparison_lines(left: Mapping[str, Any], right: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Write the comparison as lines."""
    found = differences(left, right)
    head = ("", f"{names[0]:>28}  {names[1]:>28}  {'ratio':>6}  99 % interval")
    errors = _errors(left), _errors(right)
    are_alike = _are_errors_alike(left, right)
    rate, *times = (_row(one) for one in found)
    shares = "  ".join(f"{share:>28.2%}" for share in errors)
    lines = table([head, rate, ("errors", f"{shares}  {'':6}  {'':16}  {'same' if are_alike else 'differ'}"), *times])
    counts = [len(document["runs"]) for document in (left, right)]
    if min(counts) < ENOUGH_RUNS:
        lines.append(
            f"from the intervals within {counts[0]} and {counts[1]} run(s): the spread between runs is not known, so "
            f"less than {SMALLEST_WITHIN:.0%} is called noise; --repeat {ENOUGH_RUNS} or more on both sides shows more"
        )
    if not are_alike:
        lines.append(
            f"warning: {errors[0]:.2%} and {errors[1]:.2%} were refused or failed; latencies are of what was answered, "
            "so they are of different requests and do not show which is better"
        )
    if not _are_loads_alike(left, right):
        lines.append("warning: the loads differ (see below), so nothing here says which is better")
    for name, rates in zip(names, (found[0].left, found[0].right), strict=True):
        if silent := rates.count(0):
            what = "runs" if _has_runs(left, right) else "intervals"
            lines.append(f"in {name} {silent} of {len(rates)} {what} are without an answer: a rate of 0, no latency")
    lines += unlike_lines(left, right, names)
    for name, document in zip(names, (left, right), strict=True):
        if any(run["client"]["is_limit"] for run in document["runs"]):
            lines.append(f"warning: in {name} the client was the limit")
    return lines


def _row(one: Difference) -> tuple[str, str]:
    interval = f"{one.interval[0]:.3f} to {one.interval[1]:.3f}" if one.interval else ""
    ratio = f"{one.ratio:.3f}" if one.ratio is not None else ""
    sides = "  ".join(f"{_spread(one.name, side):>28}" for side in (one.left, one.right))
    name = one.name.removesuffix("_ms").removesuffix("_per_s").replace("_", " ")
    return name, f"{sides}  {ratio:>6}  {interval:16}  {one.verdict}"


def _spread(name: str, values: Sequence[float]) -> str:
    if not values:
        return "nothing"

    def show(value: float) -> str:
        return ms(value) if name.endswith("_ms") else f"{value:,.0f}/s"

    return f"{show(statistics.median(values))} ({show(min(values))} to {show(max(values))})"


def unlike_lines(left: Mapping[str, Any], right: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Write what else differs between the measurements, and which of them does not record its options."""
    lines = [f"differs: {name} is {here} and {there}" for name, here, there in unlike(left, right)]
    for name, document in zip(names, (left, right), strict=True):
        if not document["plan"].get("options"):
            lines.append(f"{name} does not record the options of a deployment, so they cannot be compared")
    return lines


def unlike(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[tuple[str, object, object]]:
    """Return what else differs between the measurements: (name, left, right)."""
    ours, theirs = ({**_flat(one["plan"]), **_flat(one["machine"]), **_flat(one["versions"])} for one in (left, right))
    # The caller of --compare names the servers, and a port differs each time.
    names = [name for name in ours | theirs if name not in ("url", "target", "repeat", "inputs.source")]
    if not (left["plan"].get("options") and right["plan"].get("options")):
        names = [name for name in names if name.partition(".")[0] != "options"]
    return [(name, ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= _flat(cast("dict[str, Any]", value), f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found
