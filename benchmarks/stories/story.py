"""What a story is: variants that are measured in turn, medians of their figures, targets that these are held to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from summary import summary

Figures = dict[str, float]
"""Metric, with its unit in its name → value."""
Points = list[tuple[float, float]]


@dataclass
class Sample:
    """One measurement of one variant; `points` are its line in the story's plot."""

    figures: Figures
    points: Points = field(default_factory=Points)


@dataclass(frozen=True)
class Settings:
    """What a run is given: how long one measurement lasts, and where what was installed and made for it lies."""

    seconds: float
    folder: Path


@dataclass(frozen=True)
class Variant:
    """One way to serve the story's model, or the bound that no way can pass."""

    name: str
    side: Literal["baseline", "jitney", "ceiling"]
    measure: Callable[[], Sample]
    note: str = ""
    line: str = ""
    """The line of the plot that it is a point of, where several variants are one line."""


Medians = dict[str, Figures]
"""variant → metric → median"""


@dataclass(frozen=True)
class Target:
    """What the story promises; `value` is looked up in medians that hold every variant it needs."""

    what: str
    bound: float
    is_lower_better: bool
    value: Callable[[Medians], float]

    def verdict(self, medians: Medians) -> dict[str, Any]:
        try:
            measured = self.value(medians)
        except (KeyError, ZeroDivisionError):  # a variant that was not measured, or too briefly to be answered
            measured = None
        holds = measured is not None and (measured <= self.bound if self.is_lower_better else measured >= self.bound)
        return {
            "target": self.what,
            "bound": f"{'<=' if self.is_lower_better else '>='} {self.bound:g}",
            "measured": measured,
            "verdict": "not measured" if measured is None else "pass" if holds else "FAIL",
        }


@dataclass(frozen=True)
class Plot:
    """What the axes of the story's plot say."""

    x: str
    y: str


@dataclass(frozen=True)
class Theirs:
    """What its author measured: in words where the metrics of the story do not have it."""

    label: str
    metrics: Figures


@dataclass(frozen=True)
class Story:
    """One story with one model."""

    key: str
    """The number of the story, and a suffix where it has several models."""
    name: str
    what: str
    """Model and load, in one sentence."""
    scaled: str
    """What is scaled or simulated, and from which figures; empty if nothing is."""
    theirs: Theirs
    variants: list[Variant]
    targets: list[Target]
    compared: tuple[str, str]
    """The variants whose medians are divided: jitney's, the baseline's."""
    plot: Plot
    share: float
    """Of the time that all stories have."""
    missing: str = ""
    """Why it, or a part of it, cannot be measured here."""
    prepare: Callable[[], None] = lambda: None
    """Done once before the first measurement."""


def of(variant: str, metric: str) -> Callable[[Medians], float]:
    return lambda medians: medians[variant][metric]


def ratio(metric: str, variant: str, other: str) -> Callable[[Medians], float]:
    return lambda medians: medians[variant][metric] / medians[other][metric]


def all_right(*metrics: str) -> Target:
    """No answer was wrong or missing. Otherwise the figures mean nothing."""
    names = metrics or ("wrong", "missing")

    def count(medians: Medians) -> float:
        return sum(figures.get(name, 0) for figures in medians.values() for name in names)

    return Target("wrong or missing answers, all variants", 0, True, count)


def medians(samples: dict[str, list[Sample]]) -> Medians:
    return {
        variant: summary(sample.figures for sample in of_variant)
        for variant, of_variant in samples.items()
        if of_variant
    }


def report(story: Story, samples: dict[str, list[Sample]]) -> dict[str, Any]:
    """The story as the file of results holds it."""
    middle = medians(samples)
    rows: list[dict[str, Any]] = []
    series: dict[str, dict[str, Any]] = {}
    for variant in story.variants:
        of_variant = samples.get(variant.name)
        if not of_variant:
            continue
        spread = {
            name: [min(one.figures[name] for one in of_variant), max(one.figures[name] for one in of_variant)]
            for name in of_variant[0].figures
        }
        row = {"variant": variant.name, "side": variant.side, "metrics": middle[variant.name], "spread": spread}
        rows.append(row | {"note": variant.note})
        first = next(iter(of_variant[0].figures))
        usual = sorted(of_variant, key=lambda one: one.figures[first])[len(of_variant) // 2]
        if usual.points:
            line = variant.line or variant.name
            series.setdefault(line, {"name": line, "side": variant.side, "points": []})["points"] += usual.points
    ours, other = (middle.get(name, {}) for name in story.compared)
    return {
        "key": story.key,
        "name": story.name,
        "what": story.what,
        "scaled": story.scaled,
        "missing": story.missing,
        "theirs": {"label": story.theirs.label, "metrics": story.theirs.metrics},
        "rows": rows,
        "compared": list(story.compared),
        "ratio": {name: ours[name] / other[name] for name in ours if other.get(name)},
        "targets": [target.verdict(middle) for target in story.targets],
        "plot": {"x": story.plot.x, "y": story.plot.y, "series": list(series.values())},
        "repetitions": max((len(of_variant) for of_variant in samples.values()), default=0),
        "samples": {name: [one.figures for one in of_variant] for name, of_variant in samples.items()},
    }
