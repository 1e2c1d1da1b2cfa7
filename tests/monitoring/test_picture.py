"""The picture of the dashboard: it says what it is, and numbers have units that a person reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from monitoring.picture.page import Shot, page
from monitoring.picture.units import shown, ticks
from monitoring.prometheus import Prometheus, Series
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
BOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/jitney.json").read_text())
PICTURE = ROOT / "docs/images/dashboard.png"


class Constant(Prometheus):
    """Answers every query with two series."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")

    def instant(self, query: str, at: float) -> Series:
        return [{"metric": {"deployment": name, "instance": name}, "value": [at, "0.25"]} for name in ("a", "b<c")]

    def range(self, query: str, start: float, end: float, step: float = 1.0) -> Series:
        values = [[start + second, str(0.25 + second / 100)] for second in range(int(end - start))]
        return [
            {"metric": {"deployment": name, "le": le}, "values": values} for name, le in (("a", "0.1"), ("b<c", "+Inf"))
        ]


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (0.0386, "s", "38.6 ms"), (0.00013, "s", "130 µs"), (0.0, "s", "0 s"), (90, "s", "1.5 min"),
        (434.4, "reqps", "434 req/s"), (0.954, "percentunit", "95.4 %"), (7 * 2**20, "bytes", "7 MiB"),
        (12_087, "none", "12.1k"), (64, "celsius", "64 °C"),
    ],
)  # fmt: skip
def test_a_number_is_shown_with_its_unit(number: float, unit: str, text: str) -> None:
    assert shown(number, unit) == text


def test_an_axis_ends_at_a_round_number_above_the_largest_value() -> None:
    assert ticks(434, "reqps") == [0, 200, 400, 600]
    assert ticks(3 * 2**20, "bytes")[-1] == 3 * 2**20
    assert ticks(0, "s") == [0, 1]


def test_every_panel_is_drawn_and_the_page_says_that_it_is_not_grafana() -> None:
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]
    document, width, height = page(BOARD, rows, Shot(Constant(), 1000, 1090))
    assert "This is not Grafana" in document
    assert document.count("<section") == sum(
        len(panel.get("panels", [])) or panel["type"] != "row" for panel in BOARD["panels"]
    )
    assert "b<c" not in document and "b&lt;c" in document and "nan" not in document
    assert width > 800 < height


def test_the_picture_of_the_page_is_small() -> None:
    assert PICTURE.stat().st_size < 300_000
    with Image.open(PICTURE) as image:
        assert image.width > 1000
