"""What a panel is here, and what it is in Grafana's JSON."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

Json = dict[str, Any]
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
TYPES = {
    "tile": "stat",
    "lines": "timeseries",
    "stack": "timeseries",
    "bars": "timeseries",
    "heatmap": "heatmap",
    "table": "table",
    "states": "state-timeline",
}
INFO = "info"
"""The name of a query whose values are not shown, because its labels are what matters."""
HEIGHTS = {"tile": 4, "table": 6, "states": 6}
HEIGHT = 8
GREEN, AMBER, RED, BLUE = "green", "orange", "red", "blue"


@dataclass(frozen=True)
class Panel:
    """One panel. The keys of `queries` are the names of its lines, or of the columns of a table."""

    kind: str
    title: str
    unit: str
    width: int
    queries: dict[str, str]
    text: str
    """What it shows, and what to do about it."""
    warn: float | None = None
    """Amber from here on."""
    bad: float | None = None
    """Red from here on."""
    most: float | None = None
    """Upper end of the axis."""
    units: Mapping[str, str] | None = None
    """Of the columns of a table that have another unit."""
    exemplars: bool = False

    @property
    def height(self) -> int:
        """Return its height, in units of the grid."""
        return HEIGHTS.get(self.kind, HEIGHT)

    def to_grafana(self, number: int, x: int, y: int) -> Json:
        """Return it as Grafana has it, at a place of the grid."""
        return {
            "id": number,
            "type": TYPES[self.kind],
            "title": self.title,
            "description": self.text,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": self._targets(),
            "fieldConfig": {"defaults": self._defaults(), "overrides": self._overrides()},
            "options": self._options(),
            "transformations": self._transformations(),
        }

    def _targets(self) -> list[Json]:
        targets: list[Json] = []
        for letter, (legend, expr) in zip("ABCDEFGHIJKLMNOP", self.queries.items(), strict=False):
            target: Json = {"refId": letter, "datasource": SOURCE, "expr": expr, "legendFormat": legend or "__auto"}
            if self.kind == "heatmap":
                target["format"] = "heatmap"
            if self.kind == "table":
                target |= {"format": "table", "instant": True, "range": False}
            if self.exemplars:
                target["exemplar"] = True
            targets.append(target)
        return targets

    def _defaults(self) -> Json:
        steps: list[Json] = [{"color": BLUE if self.warn is None and self.bad is None else GREEN, "value": None}]
        steps += [{"color": AMBER, "value": self.warn}] if self.warn is not None else []
        steps += [{"color": RED, "value": self.bad}] if self.bad is not None else []
        found: Json = {"unit": self.unit, "thresholds": {"mode": "absolute", "steps": steps}, "custom": self._custom()}
        if self.kind in ("tile", "table"):
            found |= {"color": {"mode": "thresholds"}, "noValue": "-"}
        if TYPES[self.kind] == "timeseries":
            found |= {"color": {"mode": "palette-classic"}, "min": 0}
        if self.kind == "states":
            firing = {"1": {"text": "firing", "color": RED, "index": 0}}
            found |= {"color": {"mode": "thresholds"}, "mappings": [{"type": "value", "options": firing}]}
        if self.most is not None:
            found["max"] = self.most
        return found

    def _custom(self) -> Json:
        if TYPES[self.kind] != "timeseries":
            return {}
        custom: Json = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
        if self.kind == "stack":
            custom |= {"fillOpacity": 40, "stacking": {"mode": "normal", "group": "A"}}
        if self.kind == "bars":
            custom |= {"drawStyle": "bars", "fillOpacity": 80}
        if self.bad is not None:
            custom["thresholdsStyle"] = {"mode": "line"}
        return custom

    def _overrides(self) -> list[Json]:
        found: list[Json] = []
        for column, unit in (self.units or {}).items():
            properties: list[Json] = [{"id": "unit", "value": unit}]
            found.append({"matcher": {"id": "byName", "options": column}, "properties": properties})
        if self.kind == "table" and "deployment" in next(iter(self.queries.values())):
            link = {
                "title": "Show only this deployment",
                "url": "/d/jitney?var-deployment=${__value.text}&${__url_time_range}",
            }
            properties = [{"id": "links", "value": [link]}]
            found.append({"matcher": {"id": "byName", "options": "deployment"}, "properties": properties})
        return found

    def _options(self) -> Json:
        if self.kind == "tile":
            return {
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "colorMode": "value",
                "graphMode": "area",
                "textMode": "value" if len(self.queries) == 1 else "value_and_name",
            }
        if self.kind == "heatmap":
            colours = {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5}
            return {"calculate": False, "cellGap": 0, "color": colours, "yAxis": {"unit": self.unit}}
        if self.kind == "table":
            return {"showHeader": True, "cellHeight": "sm"}
        legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
        if self.kind == "states":
            return {"showValue": "never", "legend": legend}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}

    def _transformations(self) -> list[Json]:
        if self.kind != "table":
            return []
        names = {f"Value #{letter}": name for letter, name in zip("ABCDEFGHIJKLMNOP", self.queries, strict=False)}
        # A column of an info metric is always 1: only its labels say something. A single query has no letter.
        hidden = {"Time", "Value", *(column for column, name in names.items() if name == INFO)}
        options = {"excludeByName": dict.fromkeys(sorted(hidden), True), "renameByName": names}
        return [{"id": "merge", "options": {}}, {"id": "organize", "options": options}]


Rows = Mapping[str, Sequence[Panel]]
tile = partial(Panel, "tile")
lines = partial(Panel, "lines")
stack = partial(Panel, "stack")
bars = partial(Panel, "bars")
heatmap = partial(Panel, "heatmap")
table = partial(Panel, "table")
states = partial(Panel, "states")


def series(text: str) -> set[str]:
    """Return the names of the server's series in a query."""
    return set(re.findall(r"\b(?:jitney|process)_\w+", text))
