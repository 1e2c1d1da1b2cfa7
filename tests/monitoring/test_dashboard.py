"""The dashboard as a document: it is current, whole, and of a form that Grafana takes. No program is needed."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from jitney import _core
from monitoring import board, queries, tables
from monitoring.panels import series

ROOT = Path(__file__).resolve().parents[2]
BOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/jitney.json").read_text())
NOT_SHOWN: dict[str, str] = {}
"""Metrics that are in no panel, and why."""
GRAFANA = {
    "datasource",
    "job",
    "instance",
    "deployment",
    "slo",
    "__all",
    "__rate_interval",
    "__value",
    "__url_time_range",
}
OTHERS = {"Troubleshooting", "Batch policies"}
"""Sections of the guide that descriptions name."""
TARGETS = {"job", "instance"}
"""Labels that Prometheus adds."""


def panels() -> Iterator[dict[str, Any]]:
    for panel in BOARD["panels"]:
        yield from panel.get("panels", [])
        if panel["type"] != "row":
            yield panel


def expressions() -> Iterator[tuple[str, str, str]]:
    """Every query with the title of its panel and its legend."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["legendFormat"], target["expr"]


def test_the_files_are_what_the_tables_say() -> None:
    command = [sys.executable, str(ROOT / "scripts/dashboard.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_series_of_a_query_exists_with_its_labels() -> None:
    known = tables.labels()
    for title, _, query in expressions():
        assert series(query) <= set(known), f"{title}: {series(query) - set(known)}"
        for name, selector in re.findall(r"\b((?:jitney|process)_\w+)\{([^}]*)\}", query):
            used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
            assert used <= known[name] | TARGETS, f"{title}: {name} has no label {used - known[name] - TARGETS}"


def test_every_metric_is_in_a_panel_or_on_the_list() -> None:
    shown = {tables.metric(name) for _, _, query in expressions() for name in series(query)}
    exist = {row[0] for row in _core.metrics()}
    assert exist - shown - set(NOT_SHOWN) == set(), "show these in a panel, or say in NOT_SHOWN why not"
    assert set(NOT_SHOWN) - exist == set()
    assert set(NOT_SHOWN) & shown == set()


def test_every_outcome_has_a_cause_that_a_query_knows() -> None:
    named = re.findall(r"\w+", " ".join((queries.FAILED, queries.REFUSED, queries.CLIENTS, queries.ASKED)))
    left = {row[0] for row in _core.outcomes()} - set(named)
    assert left >= tables.PLANNED
    left -= tables.PLANNED
    assert {row[5] for row in _core.outcomes() if row[0] in left} <= {"none"}


def test_there_are_eight_rows_and_the_last_is_folded() -> None:
    heads = [panel for panel in BOARD["panels"] if panel["type"] == "row"]
    assert [(head["title"], head["collapsed"]) for head in heads] == [
        (title, title == "Machine") for title in board.ROWS
    ]
    assert len(heads) == 8


def test_ids_and_titles_are_unique_and_no_panels_overlap() -> None:
    numbers = [panel["id"] for panel in [*panels(), *(one for one in BOARD["panels"] if one["type"] == "row")]]
    assert len(numbers) == len(set(numbers))
    # A tile may have the title of the panel that shows the same over time.
    titles = [(panel["title"], panel["type"]) for panel in panels()]
    assert len(titles) == len(set(titles))
    for group in (BOARD["panels"], *(head["panels"] for head in BOARD["panels"] if head["type"] == "row")):
        places = [(panel["gridPos"], panel["title"]) for panel in group]
        assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place, _ in places)
        for (one, title), (two, other) in combinations(places, 2):
            is_beside = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
            is_apart = one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"]
            assert is_beside or is_apart, f"{title} covers {other}"


def test_a_panel_says_what_it_shows_and_in_which_unit() -> None:
    for panel in panels():
        words = panel["description"].split()
        assert len(words) >= 8 and words[-1].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), panel["title"]


def test_what_texts_call_a_panel_is_one() -> None:
    titles = {panel["title"] for panel in BOARD["panels"]} | {panel["title"] for panel in panels()} | OTHERS
    texts = {panel["title"]: panel["description"] for panel in panels()}
    pages = ("docs/operations/monitoring.md", "deploy/prometheus/jitney.rules.yml")
    texts |= {name: (ROOT / name).read_text() for name in pages}
    for place, text in texts.items():
        named = {" ".join(name.split()) for name in re.findall(r"“([^”]+)”", text)}
        assert named <= titles | {"Within … s"}, f"{place} names panels that do not exist: {named - titles}"


def test_a_legend_uses_labels_that_its_query_keeps() -> None:
    for title, legend, query in expressions():
        used = set(re.findall(r"\{\{(\w+)\}\}", legend))
        kept = {label for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(", ")}
        assert used <= kept, f"{title}: {legend} needs {used - kept}"


def test_variables_are_declared_and_used() -> None:
    names = {variable["name"] for variable in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD)))
    assert used <= GRAFANA, used - GRAFANA
    assert names == {name for name in GRAFANA if not name.startswith("__")} <= used


def test_grafana_reads_all_of_it() -> None:
    """Grafana's own model, in Python, has every field of the document: what it does not know it drops."""
    models = pytest.importorskip(
        "grafana_foundation_sdk.models.dashboard", reason="grafana-foundation-sdk is not installed"
    )
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415
    from grafana_foundation_sdk.cog.plugins import register_default_plugins  # noqa: PLC0415

    register_default_plugins()
    back = json.loads(JSONEncoder().encode(models.Dashboard.from_json(BOARD)))
    # Fields of the editor and of Prometheus' annotations, which that model leaves to the data source.
    known = re.compile(r"\.templating\.list\[\d\]\.definition|\.annotations\.list\[\d\]\.(titleFormat|step)")
    assert [place for place in missing(BOARD, back, "") if not known.fullmatch(place)] == []


def missing(sent: Any, back: Any, place: str) -> Iterator[str]:
    """Name the fields that did not come back."""
    if isinstance(sent, dict):
        for key, value in sent.items():  # pyright: ignore[reportUnknownVariableType]
            if not isinstance(back, dict) or key not in back:
                yield f"{place}.{key}"
            else:
                yield from missing(value, back[key], f"{place}.{key}")
    elif isinstance(sent, list):
        for number, value in enumerate(sent):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            yield from missing(value, back[number] if number < len(back) else None, f"{place}[{number}]")
