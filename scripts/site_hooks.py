"""What mkdocs does not do itself: links to files outside of docs/, and folders in the navigation."""

import os
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
FIRST = {"index.md", "README.md"}
"""The first page of a folder, which the navigation names."""
Entry = dict[str, "Entry"] | list["Entry"] | str
"""A part of the navigation: a page, a list, or a title and what is below it."""
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Put the pages of a folder where the navigation says `FOLDER/*` or `FOLDER/BEGIN*`."""
    config.nav = expanded(config.nav, Path(config.docs_dir))
    return config


def expanded(entry: Entry, docs: Path) -> Entry:
    if isinstance(entry, dict):
        return {title: expanded(below, docs) for title, below in entry.items()}
    if isinstance(entry, list):
        return [each for below in entry for each in pages(below, docs)]
    return entry


def pages(entry: Entry, docs: Path) -> list[Entry]:
    """Return an entry of the navigation, or the pages that it stands for: all but the first page of a folder."""
    if not (isinstance(entry, str) and entry.endswith("*")):
        return [expanded(entry, docs)]
    return [path.relative_to(docs).as_posix() for path in sorted(docs.glob(f"{entry}.md")) if path.name not in FIRST]


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Let links that lead out of docs/ lead to the repository; everything else is checked by mkdocs."""
    docs = Path(config.docs_dir)
    folder = (docs / page.file.src_uri).parent

    def outside(found: re.Match[str]) -> str:
        there = Path(os.path.normpath(folder / found[1]))
        if there.is_relative_to(docs):
            return found[0]
        kind = "tree" if there.is_dir() else "blob"
        name = there.relative_to(docs.parent).as_posix()
        return f"{config.extra['repository']}/{kind}/main/{name}{found[2] or ''}"

    parts = FENCE.split(markdown)
    fences = [*FENCE.findall(markdown), ""]
    return "".join(LINK.sub(outside, part) + fence for part, fence in zip(parts, fences, strict=True))
