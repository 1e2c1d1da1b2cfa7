"""Draw the pictures of the site into docs/images.

`--check` fails if a file is not what would be drawn. `--record` makes again what a model has made: the timings of the
timeline, and previews.png.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from site_pictures import folders, item, states, timeline
from site_pictures.record import record

IMAGES = Path(__file__).resolve().parents[2] / "docs/images"
PICTURES = {"item": item.draw, "timeline": timeline.draw, "states": states.draw, "folders": folders.draw}


def main() -> int:
    """Draw all pictures, or compare them with the files."""
    if "--record" in sys.argv:
        from site_pictures import previews  # noqa: PLC0415 - needs the packages of the example

        asyncio.run(record())
        previews.draw(IMAGES / "previews.png")
    wrong: list[str] = []
    for name, draw in PICTURES.items():
        path, text = IMAGES / f"{name}.svg", draw()
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            wrong.append(f"docs/images/{path.name} is not what scripts/site_pictures draws: run `make docs`")
    print("\n".join(wrong) or "the pictures are what scripts/site_pictures draws")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
