"""The parts of an answer and when each was made, for `jitney check`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter

from jitney.cli.check.answers import show_input

MOST_SHOWN = 5
"""Parts of one answer that are shown; of the others their number and their times."""


@dataclass(slots=True)
class Parts:
    """The parts of the first item of a call."""

    clock: Callable[[], float] = perf_counter
    began: float = 0.0
    made: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """Seconds since the call began, and what is shown of the part."""

    def begin(self) -> None:
        """Forget what was made: a call begins."""
        self.made = []
        self.began = self.clock()

    def add(self, place: int, part: object) -> None:
        """Note a part."""
        if place == 0:
            after = self.clock() - self.began
            self.made.append((after, show_input(part) if len(self.made) < MOST_SHOWN else ""))

    def lines(self, show_time: Callable[[float], str]) -> list[str]:
        """Return a line for each of the first parts, and one for the others."""
        lines = [f"part {shown} after {show_time(after)}" for after, shown in self.made[:MOST_SHOWN]]
        more = len(self.made) - MOST_SHOWN
        if more > 0:
            times = [after for after, _ in self.made]
            gap = max(later - earlier for earlier, later in pairwise(times))
            lines.append(f"and {more} more, the last after {show_time(times[-1])}; the longest gap {show_time(gap)}")
        return lines
