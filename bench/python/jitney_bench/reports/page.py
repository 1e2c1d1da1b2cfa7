"""A measurement as one HTML file: the numbers as a document inside it, and scripts that draw them. Loads nothing."""

import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jitney_bench.reports import compare, terminal

_ASSETS = files("jitney_bench.reports") / "assets"


def render(document: Mapping[str, Any]) -> str:
    """Return the whole page."""
    parts = {
        "TITLE": html.escape(f"jitney bench: {document['plan']['url']}"),
        "TEXT": html.escape("\n".join(_lines(document))),
        "ABOUT": html.escape("\n".join(_about(document))),
        # No text of the document can end the element that holds it.
        "DATA": json.dumps(document, ensure_ascii=False).replace("<", "\\u003c"),
        "LICENCE": html.escape(_asset("uplot/LICENSE")),
        "PLOT_STYLE": _asset("uplot/uPlot.min.css"),
        "PLOT_SCRIPT": _asset("uplot/uPlot.iife.min.js"),
        "STYLE": _asset("page.css"),
        "SCRIPT": _asset("page.js"),
    }
    page = _asset("page.html")
    pieces = page.split("%%")
    # Odd pieces are names; a value that holds such a mark is not looked into.
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def write(path: str, document: Mapping[str, Any]) -> None:
    """Write the page."""
    Path(path).write_text(render(document))


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text()


def _lines(document: Mapping[str, Any]) -> list[str]:
    if document["kind"] == "sweep":
        return terminal.sweep_lines(document)
    if document["kind"] == "compare":
        left, right = document["sides"]
        return compare.comparison_lines(left, right, document["names"])
    runs: Sequence[Mapping[str, Any]] = document["runs"]
    cores, loop = document["machine"]["cores"], document["plan"]["load"]["kind"]
    parts = [
        [*([f"run {place}"] if len(runs) > 1 else []), *terminal.run_lines(run, cores, loop)]
        for place, run in enumerate(runs, 1)
    ]
    return [line for part in parts for line in part]


def _about(document: Mapping[str, Any]) -> list[str]:
    if document["kind"] == "compare":
        names, (left, right) = document["names"], document["sides"]
        differing = compare.unlike_lines(left, right, names) or ["nothing differs"]
        return [*differing, "", f"{names[0]}:", *_about(left), "", f"{names[1]}:", *_about(right)]
    rows = [("measured", document["created"])]
    for part in ("plan", "versions", "machine"):
        rows += [(name, _said(value)) for name, value in document[part].items() if value is not None]
    return terminal.table(rows)


def _said(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
