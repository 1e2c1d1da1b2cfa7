"""The page: panels at their places in the grid, each with its drawing."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from monitoring.panels import INFO
from monitoring.picture import charts
from monitoring.picture.charts import Frame, Line
from monitoring.picture.units import shown
from monitoring.prometheus import Prometheus, Series, filled_in

COLUMN, UNIT, GAP = 50, 28, 8
PAD = 10
TITLE = 24
COLOURS = {"green": "#64c38b", "orange": "#f2b134", "red": "#f2495c", "blue": "#5aa9e6"}
STYLE = """
body { margin: 0; background: #10141c; color: #d5dae3; font: 13px "DejaVu Sans", sans-serif; }
header { padding: 12px 16px 4px; } header b { font-size: 19px; } header p { margin: 4px 0 0; color: #f2b134; }
main { position: relative; margin: 8px; } svg { display: block; overflow: hidden; }
svg text { fill: #8d97a8; font-size: 11px; }
section { position: absolute; background: #181e29; border: 1px solid #262e3c; border-radius: 4px; overflow: hidden; }
section > h2 { margin: 6px 10px 2px; font-size: 12.5px; font-weight: 600; white-space: nowrap; }
h1 { position: absolute; margin: 0; font-size: 15px; font-weight: 600; color: #d5dae3; }
.number { position: absolute; left: 10px; top: 30px; font-size: 21px; font-weight: 600; white-space: nowrap; }
.several { font-size: 15px; top: 34px; }
.number small { font-size: 12px; font-weight: 400; color: #8d97a8; margin-right: 8px; }
.tile svg { position: absolute; bottom: 0; left: 0; } .limit { stroke: #f2495c; stroke-dasharray: 6 4; }
.mark { stroke: #f2495c; stroke-dasharray: 3 3; }
.legend { padding: 0 10px; height: 17px; overflow: hidden; font-size: 11px; color: #aab3c2; white-space: nowrap; }
.legend span { margin-right: 12px; } .legend i { display: inline-block; width: 10px; height: 3px; margin: 0 5px 3px 0; }
table { border-collapse: collapse; width: 100%; font-size: 12px; } th { color: #8d97a8; font-weight: 400; }
td, th { text-align: right; padding: 7px 10px; border-top: 1px solid #262e3c; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; } .nothing { color: #8d97a8; padding: 4px 12px; }
"""


@dataclass(frozen=True)
class Shot:
    """What is asked: a Prometheus, and the time that the picture shows."""

    prometheus: Prometheus
    start: float
    end: float
    window: str = "10s"
    target: str = "0.1"
    deployment: str = "plain"

    def series(self, target: dict[str, Any]) -> list[Line]:
        """Return the lines that a query draws, of one deployment; of all if that one has none."""
        found: Series = []
        for deployment in (self.deployment, ".*"):
            values = {"__rate_interval": self.window, "slo": self.target, "deployment": deployment}
            found = found or self.prometheus.range(filled_in(target["expr"], **values), self.start, self.end)
        return [Line(name(target["legendFormat"], one["metric"]), numbers(one["values"])) for one in found]

    def now(self, target: dict[str, Any]) -> Series:
        """Return what a query has at the end, of all deployments."""
        query = filled_in(target["expr"], __rate_interval=self.window, slo=self.target)
        return self.prometheus.instant(query, self.end)


def name(legend: str, labels: dict[str, str]) -> str:
    if legend == "__auto":
        return ", ".join(labels.values())
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend).strip()


def numbers(values: Sequence[tuple[float, str]]) -> charts.Points:
    found = [(float(at), float(value)) for at, value in values]
    return [(at, value) for at, value in found if math.isfinite(value)]


def colour(panel: dict[str, Any], value: float) -> str:
    """Return the colour of the highest threshold that the value reaches."""
    found = "green"
    for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            found = step["color"]
    return COLOURS[found]


def tile(panel: dict[str, Any], frame: Frame, shot: Shot) -> str:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    lines = [line for target in panel["targets"] for line in shot.series(target)[:1]]
    lines = [line for line in lines if line.points]
    if not lines:
        return '<div class="number">-</div>'
    parts: list[str] = []
    for line in lines:
        label = f"<small>{escape(line.name)}</small>" if len(lines) > 1 else ""
        value = line.points[-1][1]
        parts.append(f'<span style="color:{colour(panel, value)}">{escape(shown(value, unit))}</span> {label}')
    spark = charts.spark(
        Frame(frame.width + 2 * PAD, 42, shot.start, shot.end), lines[0], colour(panel, lines[0].points[-1][1])
    )
    kind = "number several" if len(parts) > 1 else "number"
    return f'{spark}<div class="{kind}">{" ".join(parts)}</div>'


def table(panel: dict[str, Any], shot: Shot) -> str:
    """Return one row for each set of labels, as Grafana merges the queries."""
    units = {one["matcher"]["options"]: one["properties"][0]["value"] for one in panel["fieldConfig"]["overrides"]}
    first = "instance" if "by (instance)" in panel["targets"][0]["expr"] else "deployment"
    rows: dict[str, dict[str, str]] = {}
    labels = [first]
    columns = [target["legendFormat"] for target in panel["targets"] if target["legendFormat"] != INFO]
    for target in panel["targets"]:
        for one in shot.now(target):
            row = rows.setdefault(one["metric"].get(first, ""), {})
            row |= one["metric"]
            row[target["legendFormat"]] = shown(float(one["value"][1]), units.get(target["legendFormat"], "short"))
            labels += [label for label in one["metric"] if label not in labels]
    heads = [first, *columns, *labels[1:]]
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(row.get(head, ''))}</td>" for head in heads) + "</tr>"
        for _, row in sorted(rows.items())
    )
    return f"<table><tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>{body}</table>"


def drawing(panel: dict[str, Any], frame: Frame, shot: Shot) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    kind = panel["type"]
    if kind == "stat":
        return tile(panel, frame, shot)
    if kind == "table":
        return table(panel, shot)
    series = [line for target in panel["targets"] for line in shot.series(target) if line.points]
    if kind == "heatmap":
        return charts.heatmap(frame, series, defaults["unit"])
    if kind == "state-timeline":
        return charts.states(frame, series)
    custom = defaults["custom"]
    style = "bars" if custom["drawStyle"] == "bars" else "stack" if "stacking" in custom else "lines"
    steps = [step["value"] for step in defaults["thresholds"]["steps"] if step["color"] == "red"]
    limits = (defaults.get("max"), steps[0] if "thresholdsStyle" in custom else None)
    return charts.lines(frame, series, defaults["unit"], style, limits)


def chosen(board: dict[str, Any], rows: Sequence[str]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return each of these rows with its panels."""
    head: dict[str, Any] | None = None
    inside: list[dict[str, Any]] = []
    for panel in [*board["panels"], {"type": "row", "title": ""}]:
        if panel["type"] == "row":
            if head and head["title"] in rows:
                yield head, inside or head["panels"]
            head, inside = panel, []
        else:
            inside.append(panel)


def page(board: dict[str, Any], rows: Sequence[str], shot: Shot) -> tuple[str, int, int]:
    """Return the page, its width and its height."""
    parts: list[str] = []
    y = 0
    marks = sorted(
        {
            at
            for one in shot.prometheus.range(
                'increase(jitney_workers_lost_total{cause!="renewed"}[2s]) > 0', shot.start, shot.end
            )
            for at, _ in one["values"][:1]
        }
    )
    for head, panels in chosen(board, rows):
        parts.append(f'<h1 style="left:2px;top:{y + 4}px">{escape(head["title"])}</h1>')
        top, y = panels[0]["gridPos"]["y"], y + 30
        for panel in panels:
            place = panel["gridPos"]
            left, above = place["x"] * COLUMN, y + (place["y"] - top) * (UNIT + GAP)
            wide, tall = place["w"] * COLUMN - GAP, place["h"] * (UNIT + GAP) - GAP
            frame = Frame(wide - 2, tall - TITLE - charts.LEGEND - 8, shot.start, shot.end, marks)
            style = f"left:{left}px;top:{above}px;width:{wide - 2}px;height:{tall - 2}px"
            title = escape(panel["title"].replace("$slo", shot.target))
            kind = "tile" if panel["type"] == "stat" else ""
            parts.append(
                f'<section class="{kind}" style="{style}"><h2>{title}</h2>{drawing(panel, frame, shot)}</section>'
            )
        y += max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in panels) * (UNIT + GAP) - top * (UNIT + GAP)
    words = (
        "This is not Grafana: a script drew it from deploy/grafana/jitney.json and the answers of a real Prometheus to "
        "its queries."
    )
    chosen_values = f"Deployment: {shot.deployment} (all, where it has no values) · Target: {shot.target} s"
    header = f"<header><b>jitney</b> &nbsp; {chosen_values}<p>{words}</p></header>"
    height = y + 78
    document = f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style>{header}<main>{"".join(parts)}</main>'
    return document, 24 * COLUMN + 2 * GAP - 4, height
