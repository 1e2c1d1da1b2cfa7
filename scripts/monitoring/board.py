"""The dashboard: its rows, its variables, its annotations."""

from collections.abc import Sequence

from monitoring.panels import SOURCE, Json, Panel
from monitoring.queries import DEPLOYMENTS, SERVERS, WINDOW
from monitoring.rows import batches, glance, machines, traffic

ROWS = {**glance.ROWS, **traffic.ROWS, **batches.ROWS, **machines.ROWS}
FOLDED = {"Machine"}
"""Rows that are opened by a click: their queries do not run before."""
COLUMNS = 24
DEFAULT_TARGET = "0.1"


def placed(panels: Sequence[Panel], first: int, y: int) -> tuple[list[Json], int]:
    """Place panels from left to right in lines, and return them and the line below."""
    found: list[Json] = []
    x = height = 0
    for number, panel in enumerate(panels, first):
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        found.append(panel.to_grafana(number, x, y))
        x, height = x + panel.width, max(height, panel.height)
    return found, y + height


def panels() -> list[Json]:
    found: list[Json] = []
    number, y = 1, 0
    for title, row in ROWS.items():
        is_folded = title in FOLDED
        inside, below = placed(row, number + 1, y + 1)
        grid = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        head: Json = {"type": "row", "id": number, "title": title, "collapsed": is_folded, "gridPos": grid}
        found.append(head | {"panels": inside if is_folded else []})
        found += [] if is_folded else inside
        number, y = number + 1 + len(inside), y + 1 if is_folded else below
    return found


def choice(name: str, label: str, query: str, **more: object) -> Json:
    """Return a variable whose values Prometheus knows."""
    variable: Json = {"name": name, "label": label, "type": "query", "datasource": SOURCE, "refresh": 2, "sort": 1}
    return variable | {"query": {"query": query, "refId": name}, "definition": query} | more


def variables() -> list[Json]:
    several: Json = {"multi": True, "includeAll": True, "allValue": ".*"}
    several["current"] = {"text": ["All"], "value": ["$__all"]}
    bounds = 'label_values(jitney_request_duration_seconds_bucket{job=~"$job"}, le)'
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        choice("job", "Job", "label_values(jitney_connections, job)", **several),
        choice("instance", "Server", 'label_values(jitney_connections{job=~"$job"}, instance)', **several),
        choice("deployment", "Deployment", f"label_values(jitney_ready_replicas{{{SERVERS}}}, deployment)", **several),
        choice(
            "slo",
            "Target (seconds)",
            bounds,
            # A target must be a bound of the histogram. Infinity is none.
            regex="/^[0-9.e-]+$/",
            sort=3,
            current={"text": DEFAULT_TARGET, "value": DEFAULT_TARGET},
        ),
    ]


def marks(name: str, query: str, title: str, colour: str) -> Json:
    """Return vertical lines that are drawn in all panels where a query has values."""
    mark: Json = {"name": name, "expr": query, "titleFormat": title, "iconColor": colour, "datasource": SOURCE}
    return mark | {"enable": True, "step": "15s"}


def annotations() -> list[Json]:
    selected = f'jitney_workers_lost_total{{{DEPLOYMENTS}, cause!="renewed"}}'
    lost = f"sum by (deployment, cause) (increase({selected}[{WINDOW}])) > 0"
    restarted = f"sum by (instance) (changes(process_start_time_seconds{{{SERVERS}}}[{WINDOW}])) > 0"
    return [
        marks("Workers lost", lost, "{{deployment}}: a worker was lost ({{cause}})", "red"),
        marks("Servers restarted", restarted, "{{instance}} was started again", "blue"),
    ]


def dashboard() -> Json:
    return {
        "uid": "jitney",
        "title": "jitney",
        "description": "Written by `make docs`. docs/operations/monitoring.md explains the alerts.",
        "tags": ["jitney"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "",
        "annotations": {"list": annotations()},
        "templating": {"list": variables()},
        "links": [],
        "panels": panels(),
    }
