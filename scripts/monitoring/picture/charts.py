"""The drawings of panels, as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from monitoring.picture.units import shown, ticks

COLOURS = ["#5aa9e6", "#f2b134", "#64c38b", "#ed6a5a", "#b390e8", "#4ecdc4", "#f78fb3", "#c0ca33", "#a1887f", "#90a4ae"]
INK, FAINT, GRID, BAD = "#d5dae3", "#8d97a8", "#2b3342", "#f2495c"
LEFT, RIGHT, TOP, BOTTOM = 58, 8, 6, 20
LEGEND = 18
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One series: its name, and its values at instants."""

    name: str
    points: Points


@dataclass(frozen=True)
class Frame:
    """The size of a drawing, the time that it shows, and where vertical lines are."""

    width: int
    height: int
    start: float
    end: float
    marks: Sequence[float] = ()

    def x(self, at: float) -> float:
        """Return where an instant is."""
        return LEFT + (at - self.start) / (self.end - self.start) * (self.width - LEFT - RIGHT)

    def y(self, value: float, top: float) -> float:
        """Return where a value is, if the axis ends at `top`."""
        return self.height - BOTTOM - value / top * (self.height - TOP - BOTTOM)


def path(frame: Frame, points: Points, top: float, gap_s: float) -> str:
    """Return the way of a line, with gaps where values are missing."""
    parts: list[str] = []
    before = 0.0
    for at, value in points:
        begins = not parts or at - before > gap_s
        parts.append(f"{'M' if begins else 'L'}{frame.x(at):.1f} {frame.y(min(value, top), top):.1f}")
        before = at
    return "".join(parts)


def axes(frame: Frame, marks: list[float], unit: str, span: float) -> str:
    """Return the grid, its labels, and the times."""
    top = marks[-1]
    found: list[str] = []
    for value in marks:
        y = frame.y(value, top)
        found.append(f'<line x1="{LEFT}" x2="{frame.width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        found.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(shown(value, unit))}</text>')
    for seconds in range(20, int(span) + 1, 20):
        x = frame.x(frame.start + seconds)
        found.append(f'<text x="{x:.1f}" y="{frame.height - 5}" text-anchor="middle">{seconds} s</text>')
    for at in frame.marks:
        x = frame.x(at)
        found.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{frame.height - BOTTOM}" class="mark"/>')
    return "".join(found)


def svg(frame: Frame, inside: str) -> str:
    return f'<svg width="{frame.width}" height="{frame.height}">{inside}</svg>'


def stacked(lines: Sequence[Line]) -> list[Line]:
    """Put each line on top of those before it."""
    below: dict[float, float] = {}
    found: list[Line] = []
    for line in lines:
        points: Points = []
        for at, value in line.points:
            below[at] = below.get(at, 0.0) + value
            points.append((at, below[at]))
        found.append(Line(line.name, points))
    return found


def lines(frame: Frame, series: Sequence[Line], unit: str, kind: str, limits: tuple[float | None, float | None]) -> str:
    """Draw lines, areas on top of each other (`stack`), or bars. `limits` are the top of the axis and a threshold."""
    most, bad = limits
    drawn = stacked(series) if kind == "stack" else series
    largest = max((value for line in drawn for _, value in line.points), default=0.0)
    marks = ticks(largest if most is None else most, unit)
    top, base = marks[-1], frame.y(0, marks[-1])
    inside = axes(frame, marks, unit, frame.end - frame.start)
    for number, line in reversed(list(enumerate(drawn))):
        colour = COLOURS[number % len(COLOURS)]
        if kind == "bars":
            for at, value in line.points:
                x, y = frame.x(at), frame.y(value, top)
                inside += f'<rect x="{x - 2:.1f}" y="{y:.1f}" width="4" height="{base - y:.1f}" fill="{colour}"/>'
            continue
        way = path(frame, line.points, top, gap_s=5)
        if kind == "stack" and line.points:
            first, last = frame.x(line.points[0][0]), frame.x(line.points[-1][0])
            whole = path(frame, line.points, top, math.inf)
            inside += f'<path d="{whole}L{last:.1f} {base:.1f}L{first:.1f} {base:.1f}Z" fill="{colour}" opacity=".85"/>'
        inside += f'<path d="{way}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    if bad is not None and bad <= top:
        y = frame.y(bad, top)
        inside += f'<line x1="{LEFT}" x2="{frame.width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="limit"/>'
    return svg(frame, inside) + legend([line.name for line in series])


def legend(names: Sequence[str]) -> str:
    found = [
        f'<span><i style="background:{COLOURS[number % len(COLOURS)]}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    ]
    return f'<div class="legend">{"".join(found)}</div>'


def heatmap(frame: Frame, buckets: Sequence[Line], unit: str) -> str:
    """Draw how many values each bucket got; the names of the lines are the upper bounds."""
    ordered = sorted(buckets, key=lambda line: float(line.name))
    below: dict[float, float] = {}
    cells: list[tuple[int, float, float]] = []
    for row, line in enumerate(ordered):
        for at, value in line.points:
            cells.append((row, at, max(0.0, value - below.get(at, 0.0))))
            below[at] = value
    used = [row for row, _, value in cells if value > 1e-6]
    if not used:
        return svg(frame, "")
    low, high = max(0, min(used) - 1), max(used) + 1
    largest = max(value for _, _, value in cells)
    tall = (frame.height - TOP - BOTTOM) / (high - low)
    wide = (frame.width - LEFT - RIGHT) / max(1, len({at for _, at, _ in cells}))
    inside = ""
    for row, at, value in cells:
        if value > 1e-6:
            strength = 0.12 + 0.88 * math.sqrt(value / largest)
            y = frame.height - BOTTOM - (row - low + 1) * tall
            inside += (
                f'<rect x="{frame.x(at) - wide:.1f}" y="{y:.1f}" width="{wide + 0.4:.1f}" height="{tall + 0.3:.1f}" '
            )
            inside += f'fill="#ff9830" opacity="{strength:.2f}"/>'
    for row in range(low, high, max(1, (high - low) // 6)):
        bound = float(ordered[row].name)
        text = shown(bound, unit) if math.isfinite(bound) else "more"
        y = frame.height - BOTTOM - (row - low + 1) * tall + 4
        inside += f'<text x="{LEFT - 6}" y="{y:.1f}" text-anchor="end">{escape(text)}</text>'
    for seconds in range(20, int(frame.end - frame.start) + 1, 20):
        x = frame.x(frame.start + seconds)
        inside += f'<text x="{x:.1f}" y="{frame.height - 5}" text-anchor="middle">{seconds} s</text>'
    return svg(frame, inside)


def spark(frame: Frame, line: Line, colour: str) -> str:
    """Draw the small area behind the number of a tile."""
    top = max((value for _, value in line.points), default=0.0) or 1.0
    if len(line.points) < 2:
        return svg(frame, "")
    span = frame.end - frame.start
    places = [((at - frame.start) / span * frame.width, frame.height * (1 - value / top)) for at, value in line.points]
    way = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    area = f"M{way}L{places[-1][0]:.1f} {frame.height}L{places[0][0]:.1f} {frame.height}Z"
    line_of = f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
    return svg(frame, f'<path d="{area}" fill="{colour}" opacity=".18"/>{line_of}')


def states(frame: Frame, series: Sequence[Line]) -> str:
    """Draw a bar for each time in which a series has values."""
    tall = min(34.0, (frame.height - TOP - BOTTOM) / max(1, len(series)))
    wide = 210
    inside = ""
    for number, line in enumerate(series):
        y = TOP + number * tall
        inside += f'<text x="{wide - 8}" y="{y + tall / 2 + 4:.1f}" text-anchor="end">{escape(line.name)}</text>'
        for at, _ in line.points:
            second = (frame.width - wide - RIGHT) / (frame.end - frame.start)
            inside += f'<rect x="{wide + (at - frame.start) * second:.1f}" y="{y + 4:.1f}" width="{second + 0.5:.1f}" '
            inside += f'height="{tall - 8:.1f}" fill="{BAD}"/>'
    return svg(frame, inside) if series else '<p class="nothing">no alert fired</p>'
