"""Check the module graph of each Rust crate: no circle, no import upwards, no type name twice, no crowded folder.

`cargo modules --acyclic` would answer the first question, but it has to compile a whole compiler front end first. The
project writes every import as an absolute path (`use crate::link::frame::Kind`), so the text of the files is enough.
Tests inside files are left out: they may look at anything.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_CHILDREN = 10
TYPE = re.compile(r"^\s*pub(?:\(crate\))? (?:struct|enum|trait|type|union) (\w+)", re.MULTILINE)
FLOORS = re.compile(r"Floors, from the ground: ([^.]*)\.")

Graph = dict[str, set[str]]


def sources(crate: Path) -> dict[str, str]:
    """Map each module of a crate, by its path such as `link::frame`, to its text without comments and inline tests."""
    found: dict[str, str] = {}
    for path in sorted((crate / "src").rglob("*.rs")):
        parts = list(path.relative_to(crate / "src").with_suffix("").parts)
        if parts[-1] in ("mod", "lib", "main"):
            parts.pop()
        if "tests" in parts or "messages" in parts:
            continue
        text = re.split(r"^#\[cfg\(test\)\]\n(?:pub\(crate\) )?mod \w+ \{", path.read_text(), flags=re.MULTILINE)[0]
        found["::".join(parts)] = re.sub(r"//[^\n]*", "", text)
    return found


def leaves(tree: str) -> Iterator[list[str]]:
    """Yield every path of a use tree: `a::{b, c::d}` has `a::b` and `a::c::d`."""
    head, brace, rest = tree.partition("{")
    prefix = [part for part in head.strip().split("::") if part]
    if not brace:
        yield [part.split(" as ")[0].strip() for part in prefix]
        return
    depth, start = 0, 0
    body = rest.rstrip()[:-1]
    for index, letter in enumerate(body + ","):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if piece := body[start:index].strip():
                for leaf in leaves(piece):
                    yield prefix + leaf
            start = index + 1


def imports(name: str, text: str) -> Iterator[list[str]]:
    """Yield what a module names inside its crate, as absolute paths without `crate`."""
    used = re.findall(r"\buse ((?:crate|super)\b[^;]*);", text)
    inline = re.findall(r"(?<![\w:])((?:crate|super)(?:::\w+)+)", re.sub(r"\buse [^;]*;", "", text))
    for tree in used + inline:
        for leaf in leaves(tree):
            above = next((place for place, part in enumerate(leaf) if part != "super"), len(leaf))
            own = name.split("::") if name else []
            yield leaf[1:] if leaf[0] == "crate" else own[: len(own) - above] + leaf[above:]


def graph(modules: dict[str, str]) -> Graph:
    """Say which modules each module imports."""
    edges: Graph = {name: set() for name in modules}
    for name, text in modules.items():
        for path in imports(name, text):
            target = next((t for n in range(len(path), 0, -1) if (t := "::".join(path[:n])) in modules), "")
            if target not in ("", name):
                edges[name].add(target)
    return edges


def circles(edges: Graph) -> list[list[str]]:
    """List the sets of nodes that reach each other (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in sorted(edges[node]):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            cut = stack.index(node)
            component = stack[cut:]
            del stack[cut:]
            if len(component) > 1:
                result.append(sorted(component))

    for node in sorted(edges):
        if node not in order:
            visit(node)
    return result


def folder_circles(edges: Graph) -> list[list[str]]:
    """List circles between the children of each folder, where a child stands for all that is below it."""
    result: list[list[str]] = []
    folders = {"::".join(name.split("::")[:depth]) for name in edges for depth in range(name.count("::") + 1)}
    for folder in sorted(folders):
        prefix = folder.split("::") if folder else []
        inner: Graph = defaultdict(set)
        for name, targets in edges.items():
            for target in targets:
                here, there = name.split("::"), target.split("::")
                depth = len(prefix)
                if here[:depth] == there[:depth] == prefix and min(len(here), len(there)) > depth:
                    start, end = "::".join(here[: depth + 1]), "::".join(there[: depth + 1])
                    inner[end] |= set()
                    if start != end:
                        inner[start].add(end)
        result += circles(dict(inner))
    return result


def upwards(crate: Path, edges: Graph) -> list[str]:
    """List imports from a floor that `lib.rs` names after the floor of the importer."""
    listed = FLOORS.search((crate / "src" / "lib.rs").read_text())
    floors = re.findall(r"`(\w+)`", listed.group(1)) if listed else []
    rank = {floor: index for index, floor in enumerate(floors)}
    rows = [f"lib.rs names no floor `{top}`" for top in sorted({name.split("::")[0] for name in edges} - {"", *rank})]
    for name, targets in edges.items():
        for target in sorted(targets):
            low, high = name.split("::")[0], target.split("::")[0]
            if low in rank and high in rank and rank[high] > rank[low]:
                rows.append(f"{name} imports {target}, which is on a floor above it")
    return rows


def doubled_types(modules: dict[str, str]) -> list[str]:
    """List public type names that more than one module of a crate defines."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, text in modules.items():
        for found in TYPE.findall(text):
            places[found].append(name)
    return [f"{kind} is the name of several types: {', '.join(at)}" for kind, at in places.items() if len(at) > 1]


def crowded(crate: Path) -> list[str]:
    """List folders that show more than `MAX_CHILDREN` files and folders, `mod.rs` and tests not counted."""
    rows: list[str] = []
    for folder in [crate / "src", *(path for path in (crate / "src").rglob("*") if path.is_dir())]:
        if "messages" in folder.parts:
            continue
        shown = {path.stem for path in folder.iterdir() if path.is_dir() or path.suffix == ".rs"}
        count = len(shown - {"mod", "lib", "tests"})
        if count > MAX_CHILDREN:
            rows.append(f"{folder.name}: {count} files and folders side by side, at most {MAX_CHILDREN}")
    return rows


def check(crate: Path) -> list[str]:
    """List everything that is wrong with the modules of one crate."""
    modules = sources(crate)
    edges = graph(modules)
    problems = [f"circle: {' , '.join(names)}" for names in circles(edges)]
    problems += [f"circle of folders: {' , '.join(names)}" for names in folder_circles(edges)]
    problems += upwards(crate, edges) + doubled_types(modules) + crowded(crate)
    return [f"{crate.name}: {problem}" for problem in dict.fromkeys(problems)]


def rust_modules(root: Path) -> Iterable[str]:
    """List everything that is wrong with the modules of all crates below `root`."""
    return [row for manifest in sorted(root.glob("crates/*/Cargo.toml")) for row in check(manifest.parent)]


if __name__ == "__main__":
    rows = list(rust_modules(Path(__file__).resolve().parent.parent))
    print("\n".join(rows) or "modules: no circle, no import upwards, no type name twice, no crowded folder")
    sys.exit(bool(rows))
