"""The page with plots: one file of HTML without scripts; bars are SVG, the spread is a line on the bar."""

import html
from typing import Any

from page.compare import OURS, Row, Spread, behind, lost, rows_of
from page.peers import LOAD_TITLES, POINT_TITLES, headline, judged, titles
from page.results import Found, Sources
from page.text import COLUMNS, measured, number

STYLE = """
:root { color-scheme: light dark; --ours: #c2410c; --theirs: #64748b; --line: #94a3b8; --bg: #fff; --fg: #0f172a; }
@media (prefers-color-scheme: dark) { :root { --theirs: #94a3b8; --line: #475569; --bg: #0f172a; --fg: #e2e8f0; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem;
       background: var(--bg); color: var(--fg); }
figure { display: inline-block; margin: .5rem 1.5rem 1rem 0; vertical-align: top; }
figcaption { font-weight: 600; } .lost { color: #dc2626; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.axis { fill: none; stroke: var(--line); } .line { fill: none; stroke-width: 2; }
.ours-line { stroke: var(--ours); } .theirs-line { stroke: var(--theirs); }
.ours { fill: var(--ours); } .theirs { fill: var(--theirs); } .spread { stroke: currentColor; stroke-width: 1.5; }
"""
ROW, LABEL, WIDTH, VALUE = 20, 240, 260, 110

Bar = tuple[str, Spread, bool]
"""Label, value, is it ours."""


def bars(title: str, values: list[Bar], mark: str = "") -> str:
    """Horizontal bars on one linear scale from zero."""
    most = max((spread.high for _, spread, _ in values), default=0.0) or 1.0

    def at(value: float) -> float:
        return round(LABEL + value / most * WIDTH, 1)

    parts: list[str] = []
    for index, (label, spread, is_ours) in enumerate(values):
        top = index * ROW
        kind = "ours" if is_ours else "theirs"
        parts.append(f'<text x="{LABEL - 6}" y="{top + 14}" text-anchor="end">{html.escape(label)}</text>')
        width = round(at(spread.median) - LABEL, 1)
        parts.append(f'<rect class="{kind}" x="{LABEL}" y="{top + 3}" width="{width}" height="{ROW - 6}"/>')
        if spread.high > spread.low:
            low, high, middle = at(spread.low), at(spread.high), top + ROW // 2
            parts.append(f'<line class="spread" x1="{low}" x2="{high}" y1="{middle}" y2="{middle}"/>')
        parts.append(f'<text x="{at(spread.high) + 6}" y="{top + 14}">{number(spread.median)}</text>')
    size = f'width="{LABEL + WIDTH + VALUE}" height="{len(values) * ROW}"'
    caption = html.escape(title) + (f' <span class="lost">{html.escape(mark)}</span>' if mark else "")
    return f'<figure><figcaption>{caption}</figcaption><svg {size} role="img">{"".join(parts)}</svg></figure>'


def lines(x: str, y: str, series: list[dict[str, Any]]) -> str:
    """Lines through points (x, y), both axes from zero; jitney's has its colour, the others differ by dashes."""
    points = [point for one in series for point in one["points"]]
    most_x, most_y = (max((point[axis] for point in points), default=0) or 1 for axis in (0, 1))
    wide, high, left = 520, 260, 60

    def at(point: list[float]) -> str:
        return f"{left + point[0] / most_x * wide:.1f},{high - point[1] / most_y * (high - 20):.1f}"

    parts = [f'<path class="axis" d="M{left},10 V{high} H{left + wide}"/>']
    for share in (0.5, 1):
        row = high - share * (high - 20)
        parts.append(f'<text x="{left - 6}" y="{row + 4}" text-anchor="end">{number(most_y * share)}</text>')
        column = left + share * wide
        parts.append(f'<text x="{column}" y="{high + 16}" text-anchor="middle">{number(most_x * share)}</text>')
    others = 0
    for index, one in enumerate(series):
        is_ours = one["side"] == OURS
        others += not is_ours
        style = (
            'class="line ours-line"' if is_ours else f'class="line theirs-line" stroke-dasharray="{2 * others + 1} 3"'
        )
        parts.append(f'<polyline {style} points="{" ".join(at(point) for point in sorted(one["points"]))}"/>')
        top = 20 + index * 18
        parts.append(f'<path {style} d="M{left + wide + 12},{top - 4} h24"/>')
        parts.append(f'<text x="{left + wide + 42}" y="{top}">{html.escape(one["name"])}</text>')
    size = f'width="{left + wide + 320}" height="{max(high + 24, 20 + len(series) * 18)}"'
    caption = html.escape(f"{y}, by {x}")
    return f'<figure><figcaption>{caption}</figcaption><svg {size} role="img">{"".join(parts)}</svg></figure>'


def of_row(names: dict[str, str], row: Row, metric: str) -> str:
    values = [
        (names[entry.server], entry.metrics[metric], entry.server == OURS)
        for entry in row.entries
        if metric in entry.metrics
    ]
    values.sort(key=lambda bar: bar[1].median, reverse=metric in ("rps", "parts_s"))
    verdict = row.verdicts.get(metric)
    mark = "lost" if verdict and verdict.outcome == "lost" else ""
    return bars(f"{COLUMNS[metric]}, {POINT_TITLES[row.point]}", values, mark)


def peers(found: Found | None, title: str = "Other servers") -> list[str]:
    if found is None:
        return []
    document, rows = found.document, rows_of(found.document)
    names = titles(document)
    score = "\n".join(f"<li>{html.escape(line[2:])}</li>" for line in headline(document, rows) if line.startswith("- "))
    parts = [
        f"<h2>{title}</h2>",
        f"<ul>{score}</ul>",
        f"<p>{len(lost(rows))} comparisons lost. Each is marked.</p>",
    ]
    for load in document["method"]["loads"]:
        of_load = [row for row in rows if row.load == load]
        if of_load:
            parts.append(f"<h3>{html.escape(LOAD_TITLES[load])}</h3>")
            parts += [of_row(names, row, metric) for row in of_load for metric in judged(of_load)]
            last = of_load[-1]
            parts.append(of_row(names, last, "memory_mb"))
    return parts


def stories(runs: list[Found]) -> list[str]:
    parts = ["<h2>Stories</h2>"] if runs else []
    for story in (story for run in runs for story in run.document["stories"]):
        parts.append(f"<h3>{html.escape(story['name'])}</h3><p>{html.escape(story.get('what', ''))}</p>")
        plot = story.get("plot") or {"series": []}
        if plot["series"]:
            parts.append(lines(plot["x"], plot["y"], plot["series"]))
        metrics = dict.fromkeys(name for row in story["rows"] for name in row["metrics"])
        for metric in metrics:
            values: list[Bar] = []
            for row in (row for row in story["rows"] if row["metrics"].get(metric) is not None):
                median = row["metrics"][metric]
                low, high = row.get("spread", {}).get(metric) or (median, median)
                values.append((row["variant"], Spread(median, low, high), row.get("side") == "jitney"))
            parts.append(bars(metric, values))
    return parts


TITLES = {
    **COLUMNS,
    "resident_mb": "memory, MB",
    "lost": "requests lost",
    "of_ceiling": "share of the ceiling",
    "part_cpu_us": "CPU of the front per part, µs",
}


def targets(sources: Sources) -> list[str]:
    parts = ["<h2>make bench</h2>"] if sources.scenarios else []
    failed = [target.row for target in sources.targets if target.row["verdict"] == "FAIL"]
    if failed:
        named = "; ".join(f"{row['target']} {measured(row)}, target {row['bound']}" for row in failed)
        parts.append(f'<p class="lost">{len(failed)} targets are not reached: {html.escape(named)}.</p>')
    for scenario, run in sources.scenarios.items():
        of, worse = run.document["medians"][scenario], behind(run.document, scenario)
        parts.append(f"<h3>{html.escape(scenario)}</h3>")
        for metric in ("rps", "p50_ms", "p99_ms", "parts_s", "part_cpu_us", "resident_mb", "of_ceiling"):
            having = {server: figures[metric] for server, figures in of.items() if metric in figures}
            if having:
                title = TITLES[metric]
                mark = next((f"behind: {one.outcome}" for one in worse if one.metric == metric), "")
                parts.append(bars(title, [(name, Spread(v, v, v), name == OURS) for name, v in having.items()], mark))
    return parts


def scale(sources: Sources) -> list[str]:
    parts = ["<h2>Many machines, and models that use each other</h2>"] if sources.scale_scenarios else []
    for scenario, run in sources.scale_scenarios.items():
        parts.append(f"<h3>{html.escape(scenario)}</h3>")
        of = run.document["medians"][scenario]
        for metric in ("rps", "p50_ms", "p99_ms", "lost", "resident_mb", "of_ceiling"):
            having = {server: figures[metric] for server, figures in of.items() if metric in figures}
            values = [(name, Spread(v, v, v), name.startswith(OURS)) for name, v in having.items()]
            parts += [bars(TITLES[metric], values)] if values else []
    return parts


def report(sources: Sources) -> str:
    """benchmarks/report.html."""
    body = [
        *peers(sources.peers),
        *peers(sources.streams, "Other servers, answers in parts"),
        *stories(sources.stories),
        *targets(sources),
        *scale(sources),
    ]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>jitney: benchmark report</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style>",
            "<h1>Benchmark report</h1>",
            "<p>Bars are medians. The thin line is the range of the repetitions. Tables, versions and method: ",
            '<a href="report.md">report.md</a>.</p>',
            *body,
            "</html>\n",
        ]
    )
