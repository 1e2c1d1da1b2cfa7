"""What a page of docs/migrate holds: cases, each with servers of both sides and the requests that both get.

A case is a section. Its console blocks are of two kinds. One begins with a command that starts a server, and further
commands in it are requests to that server alone. The other kind is requests to each server of the section.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from pages import ROOT, Block, Command, blocks, commands

FOLDER = "docs/migrate"
# The page, and the server in benchmarks/peers/catalog.py; None if the tests' own environment has it.
PEERS: dict[str, str | None] = {
    "litserve": "litserve",
    "bentoml": "bentoml",
    "ray-serve": "ray",
    "triton": "pytriton",
    "mosec": "mosec",
    "fastapi": None,
}
START = re.compile(r"jitney serve|python \w+_server\.py|bentoml serve|uvicorn |tritonserver ")
NAMED = re.compile(r"# ([\w/-]+\.(?:py|pbtxt))\n")


@dataclass(frozen=True)
class Side:
    """A server of a case: the command that starts it, and the requests that it gets."""

    command: str
    is_ours: bool
    calls: tuple[Command, ...]


@dataclass(frozen=True)
class Case:
    """One section of a page, with both sides."""

    page: str
    heading: str
    ours: Side
    theirs: Side

    def __str__(self) -> str:
        return f"{self.page}: {self.heading}"


def path_of(page: str) -> str:
    return f"{FOLDER}/{page}.md"


def files(page: str) -> dict[str, str]:
    """The files of a page, by name."""
    return {name: block.text for block in blocks(path_of(page)) if (name := name_of(block))}


def name_of(block: Block) -> str | None:
    """The path in the comment on the first line, if the block is a file."""
    found = NAMED.match(block.text)
    return found.group(1) if found else None


def sections(page: str) -> dict[str, list[Block]]:
    """The blocks that are run, by the heading above them."""
    lines = (ROOT / path_of(page)).read_text().splitlines()
    found: dict[str, list[Block]] = {}
    for block in blocks(path_of(page)):
        above = [line for line in lines[: block.line] if line.startswith("## ")]
        if block.reason is None:
            found.setdefault(above[-1][3:] if above else "", []).append(block)
    return found


def cases(page: str) -> list[Case]:
    """The sections of a page that start servers."""
    return [
        case(page, heading, [commands(block) for block in found if block.language == "console"])
        for heading, found in sections(page).items()
        if any(block.language == "console" for block in found)
    ]


def case(page: str, heading: str, consoles: list[list[Command]]) -> Case:
    starts = [console for console in consoles if START.match(console[0].line)]
    shared = [call for console in consoles if console not in starts for call in console]
    sides = [Side(first.line, is_ours(page, first.line), (*calls, *shared)) for first, *calls in starts]
    ours, theirs = [side for side in sides if side.is_ours], [side for side in sides if not side.is_ours]
    assert len(ours) == len(theirs) == 1, f"{page}: {heading}: a section has one server of each side"
    return Case(page, heading, ours[0], theirs[0])


def is_ours(page: str, command: str) -> bool:
    """Say whether the command serves a file that imports jitney."""
    modules = re.findall(r"\w+", command)
    named = [text for name, text in files(page).items() if name.split("/")[0].removesuffix(".py") in modules]
    assert named, f"{page}: no file of the page is in {command!r}"
    return any("import jitney" in text for text in named)


def is_shown(shown: str, output: str) -> bool:
    """Say whether an output is what the page shows; spaces in JSON do not count, and … stands for anything."""
    if "…" not in shown:
        try:
            return json.loads(shown) == json.loads(output)
        except ValueError:
            return shown.strip() == output.strip()
    pattern = r".*?".join(map(re.escape, shown.split("…")))
    return re.fullmatch(pattern, output.strip(), re.DOTALL) is not None


def values(output: str) -> list[Any]:
    """The texts and numbers of an answer, in order, whatever the names around them."""
    try:
        return list(leaves(json.loads(output)))
    except ValueError:
        return [output.strip()]


def leaves(value: Any) -> Iterator[Any]:
    """The values inside lists and objects."""
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        # jitney's answer to many items says how many failed; the count is not a value of the model.
        inside = fields["outcomes"] if fields.keys() == {"outcomes", "failed"} else fields.values()
    elif isinstance(value, list):
        inside = cast(list[Any], value)
    else:
        yield value
        return
    for each in inside:
        yield from leaves(each)
