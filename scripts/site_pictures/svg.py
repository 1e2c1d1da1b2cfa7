"""What all pictures share: boxes, arrows and texts, in light and dark."""

from dataclasses import dataclass, field
from xml.sax.saxutils import escape

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .bold { font-weight: 600 }
  .small { font-size: 11px; fill: #57606a }
  .middle { text-anchor: middle }
  .box { fill: #e0f2f1; stroke: #00897b }
  .other { fill: #fff3e0; stroke: #ef6c00 }
  .area { fill: none; stroke: #8c959f }
  .wait { fill: #b2dfdb }
  .run { fill: #00796b }
  .run2 { fill: #ef6c00 }
  .line { stroke: #57606a; fill: none }
  .head { fill: #57606a }
  .grid { stroke: #d0d7de }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9da7b3 }
    .box { fill: #12403b; stroke: #4db6ac }
    .other { fill: #4a3213; stroke: #ffb74d }
    .area { stroke: #6e7681 }
    .wait { fill: #2b5d57 }
    .run { fill: #4db6ac }
    .run2 { fill: #ffb74d }
    .line { stroke: #9da7b3 }
    .head { fill: #9da7b3 }
    .grid { stroke: #3d444d }
  }
"""
HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="head" d="M0 0 8 4 0 8z"/></marker>'
)


Place = tuple[float, float, float, float]
"""The left and upper end of a rectangle, its width and its height."""


@dataclass
class Picture:
    """A picture in the making. A narrow page scales it down."""

    title: str
    width: int
    height: int
    parts: list[str] = field(default_factory=list[str])

    def text(self, x: float, y: float, text: str, style: str = "") -> None:
        """Write a line; y is its baseline."""
        self.parts.append(f'<text class="{style}" x="{x:g}" y="{y:g}">{escape(text)}</text>')

    def rect(self, place: Place, style: str, radius: float = 6) -> None:
        """Draw a rectangle with round corners."""
        x, y, width, height = place
        self.parts.append(
            f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'
        )

    def box(self, place: Place, title: str, *details: str, style: str = "box") -> None:
        """Draw a box with a title, and smaller lines below it, all in its middle."""
        self.rect(place, style)
        x, y, width, height = place
        middle, first = x + width / 2, y + height / 2 + 5 - 7 * len(details)
        self.text(middle, first, title, "bold middle")
        for number, line in enumerate(details, 1):
            self.text(middle, first + 14 * number, line, "small middle")

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draw an arrow through these points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline class="line" points="{path}" marker-end="url(#head)"/>')

    def area(self, points: list[tuple[float, float]]) -> None:
        """Draw the border of an area."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polygon class="area" stroke-dasharray="5 4" points="{path}"/>')

    def svg(self) -> str:
        """Return the file."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        body = "\n".join(["<defs>", HEAD, "</defs>", *self.parts])
        title = f"<title>{escape(self.title)}</title>"
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        return f"{head}\n{title}\n<style>{STYLE}</style>\n{body}\n</svg>\n"
