"""The timeline of batches, from the timings of a real run.

`python scripts/site_pictures --record` runs a model of 20 ms and 2 ms per item, sends requests at the times of
ARRIVALS_MS, and writes the timings that each answer has into timeline.json. The picture is drawn from that file.
"""

import json
from pathlib import Path
from typing import TypedDict

from site_pictures.svg import Picture

RECORD = Path(__file__).with_name("timeline.json")
ARRIVALS_MS = [0, 4, 8, 11, 15, 18, 30, 33, 36, 40, 44, 47, 52, 56]
LAUNCH_MS, ITEM_MS = 20, 2
LEFT, ROW, TOP, PIXELS = 34, 17, 30, 4.3


class Timing(TypedDict):
    """Of one request: milliseconds from the first arrival, in the queue, and in the batch."""

    arrived_ms: float
    queue_ms: float
    run_ms: float
    batch_size: int


def draw() -> str:
    """Draw a bar for each request: light while it waits, dark while its batch runs."""
    timings: list[Timing] = json.loads(RECORD.read_text())["requests"]
    last = max(each["arrived_ms"] + each["queue_ms"] + each["run_ms"] for each in timings)
    bottom = TOP + ROW * len(timings)
    picture = Picture("Batches of a real run", int(LEFT + PIXELS * last + 14), bottom + 52)
    for at in range(0, int(last) + 1, 20):
        x = LEFT + PIXELS * at
        picture.parts.append(f'<path class="grid" d="M{x:g} {TOP - 6}V{bottom + 4}"/>')
        picture.text(x, TOP - 12, f"{at}" if at else "0 ms", "small middle")
    starts = sorted({round(each["arrived_ms"] + each["queue_ms"]) for each in timings})
    batches: list[int] = []
    for start in starts:
        if not batches or start - batches[-1] > LAUNCH_MS / 2:
            batches.append(start)
    for row, each in enumerate(timings):
        y, start = TOP + row * ROW, each["arrived_ms"] + each["queue_ms"]
        number = max(place for place, first in enumerate(batches) if first <= start + 1)
        picture.text(8, y + 11, str(row + 1), "small")
        picture.rect((LEFT + PIXELS * each["arrived_ms"], y, PIXELS * each["queue_ms"], ROW - 5), "wait", 2)
        picture.rect((LEFT + PIXELS * start, y, PIXELS * each["run_ms"], ROW - 5), "run2" if number % 2 else "run", 2)
    picture.rect((LEFT, bottom + 14, 22, 10), "wait", 2)
    picture.text(LEFT + 28, bottom + 23, "waits in the queue", "small")
    picture.rect((LEFT + 150, bottom + 14, 22, 10), "run", 2)
    picture.rect((LEFT + 176, bottom + 14, 22, 10), "run2", 2)
    picture.text(LEFT + 204, bottom + 23, "its batch runs; the next batch", "small")
    sizes = ", ".join(str(size) for size in sizes_of(timings, batches))
    picture.text(LEFT, bottom + 42, f"batches of {sizes} items; one replica", "small")
    return picture.svg()


def sizes_of(timings: list[Timing], batches: list[int]) -> list[int]:
    starts = [each["arrived_ms"] + each["queue_ms"] for each in timings]
    places = [max(place for place, first in enumerate(batches) if first <= start + 1) for start in starts]
    return [places.count(place) for place in range(len(batches))]
