"""The folder map, made from the folders that are there."""

from pathlib import Path

from site_pictures.svg import Picture

ROOT = Path(__file__).resolve().parents[2]
# Each folder, and what it is for. The folders directly below those with a `True` are listed from the disk.
FOLDERS: list[tuple[str, str, bool]] = [
    ("crates/core/src", "rules: no I/O, no clock", True),
    ("crates/channel/src", "bytes between processes and machines", True),
    ("crates/server/src", "motion: sockets, protocols, engine, links", True),
    ("crates/binding/src", "the only crate that knows Python", True),
    ("crates/bench/src", "the load generator", True),
    ("python/jitney", "what users write and run", True),
    ("bench/python", "jitney bench", False),
    ("tests", "contract, unit, end to end, machines …", False),
    ("benchmarks", "measurements, and other servers", False),
    ("deploy", "container, systemd, Kubernetes, dashboard", False),
    ("docs", "this site", False),
    ("examples", "models to copy", False),
    ("scripts", "checks, generators, pictures", False),
]
LINE, CHARACTERS = 15, 70


def below(folder: str) -> list[str]:
    paths = sorted((ROOT / folder).iterdir())
    return [path.name for path in paths if path.is_dir() and not path.name.startswith((".", "__"))]


def lines(names: list[str]) -> list[str]:
    """Break a list of names into lines that fit."""
    found = [""]
    for name in names:
        if len(found[-1]) + len(name) > CHARACTERS:
            found.append("")
        found[-1] += f" · {name}" if found[-1] else name
    return [line for line in found if line]


def draw() -> str:
    """Draw a box for each folder, with the folders below it."""
    y = 4.0
    boxes: list[tuple[float, float, str, str, list[str]]] = []
    for folder, words, lists in FOLDERS:
        rows = lines(below(folder)) if lists else []
        height = 26 + LINE * len(rows)
        boxes.append((y, height, folder, words, rows))
        y += height + 5
    picture = Picture("The folders of the project", 490, int(y))
    for top, height, folder, words, rows in boxes:
        picture.rect((4, top, 482, height), "other" if "python" in folder else "box")
        picture.text(14, top + 17, folder, "bold")
        picture.text(190, top + 17, words, "small")
        for number, row in enumerate(rows, 1):
            picture.text(26, top + 17 + LINE * number, row, "small")
    return picture.svg()
