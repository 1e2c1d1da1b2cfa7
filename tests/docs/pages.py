"""What a page holds for a machine: its fenced blocks, its links, its headings."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"(?:^ *<!-- not run: (?P<reason>.+?) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block, and why it is not run, if it says so."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None

    @property
    def file(self) -> str | None:
        """The name in the comment on its first line, if it is a file to be saved."""
        found = re.match(r"# ([\w-]+\.(?:py|toml))\n", self.text)
        return found.group(1) if found else None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A line after `$ `, and what it is said to print."""

    block: Block
    line: str
    output: str

    def __str__(self) -> str:
        return f"{self.block}: {self.line}"

    def prints(self, output: str) -> bool:
        """Say whether this is what it prints; … stands for anything."""
        pattern = ".*?".join(map(re.escape, self.output.split("…")))
        return re.fullmatch(pattern, output.replace("\r", "").strip(), re.DOTALL) is not None


def pages_below(folder: str, left_out: Iterable[str]) -> list[str]:
    """Return every page below a folder, in order, without those whose path begins with one of `left_out`."""
    names = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.md"))
    return [name for name in names if not name.startswith(tuple(left_out))]


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, m.start("text")), m["language"], textwrap.dedent(m["text"]), m["reason"])
        for m in FENCE.finditer(text)
    ]


def commands(block: Block) -> list[Command]:
    assert block.text.startswith("$ "), f"{block}: a console block begins with a command"
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [
        Command(block, line, output.strip())
        for line, output in (part.rstrip("\n").partition("\n")[::2] for part in parts)
    ]


def broken_links(page: Path) -> list[str]:
    """Relative links that lead nowhere: to no file, or to no heading of it."""
    problems: list[str] = []
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if "://" in target:
            continue
        place, _, heading = target.partition("#")
        there = page.parent / place if place else page
        if not there.exists() or (heading and heading not in headings(there)):
            problems.append(f"{page.relative_to(ROOT)}: {target}")
    return problems


def run_line(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of a page as a reader would, with the interpreter of the tests first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def headings(page: Path) -> set[str]:
    """The names by which the headings of a page can be linked to."""
    found = HEADING.findall(FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}
