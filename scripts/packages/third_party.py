"""Write THIRD-PARTY-LICENSES of both packages: the licences of the Rust crates that their extension modules link.

`--check` writes nothing and fails if a file differs from what Cargo.lock now says. A licence that is not in ALLOWED
fails either way. Where a crate offers Apache-2.0, which is also jitney's licence, that text is taken. Texts that
are the same are written once.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"jitney-binding": ROOT, "jitney-bench-binding": ROOT / "bench"}
"""Crate of an extension module → folder of the package that contains it."""
TARGETS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]
# The same as in deny.toml, which is checked for all crates, those of tests too.
ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}
NAMES = re.compile(r"(licen[sc]e|copying|notice|unlicense)", re.IGNORECASE)
HEAD = """\
{package} contains parts of the Rust crates below, in compiled form. Each is under the licence next to its name; the
texts follow. The standard library of Rust is also contained: MIT OR Apache-2.0, (c) The Rust Project contributors.
"""


@dataclass(frozen=True)
class Crate:
    """One linked crate."""

    name: str
    version: str
    license: str
    folder: Path

    def texts(self) -> list[str]:
        """Return the licence texts of the crate that apply, and its notices."""
        files = sorted(path for path in self.folder.iterdir() if path.is_file() and NAMES.match(path.name))
        # The C sources of a crate may have their licence next to them.
        files += sorted(self.folder.glob("c_src/*/LICENSE"))
        notices = [path for path in files if path.name.lower().startswith("notice")]
        apache = [path for path in files if "apache" in path.name.lower()]
        offers_apache = any("Apache-2.0" in choice for choice in choices(self.license)) and "AND" not in self.license
        chosen = [*apache, *notices] if offers_apache and apache else files
        return [path.read_text(errors="replace").replace("\r\n", "\n").strip() for path in chosen]


def choices(expression: str) -> list[str]:
    """Return the alternatives of a licence expression, which older crates separate by a slash."""
    return [part.strip() for part in re.split(r"\bOR\b|/", expression)]


def is_allowed(expression: str) -> bool:
    """Whether the licence can be fulfilled with those in ALLOWED alone."""
    needed = [part.strip("() ") for part in re.split(r"\bAND\b", expression)]
    return all(any(choice.strip("() ") in ALLOWED for choice in choices(part)) for part in needed)


def dependencies(target: str) -> dict[str, Any]:
    """Return what cargo knows about all crates and their edges, for one target."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(ran.stderr)
    return json.loads(ran.stdout)


def linked(package: str, data: dict[str, Any]) -> Iterator[Crate]:
    """Yield the crates of others that are linked into `package`."""
    crates: dict[str, Any] = {crate["id"]: crate for crate in data["packages"]}
    edges = {node["id"]: node["deps"] for node in data["resolve"]["nodes"]}
    to_visit = [next(number for number, crate in crates.items() if crate["name"] == package)]
    visited: set[str] = set()
    while to_visit:
        number = to_visit.pop()
        # What runs in the compiler is not linked, and nothing below it is.
        is_macro = any("proc-macro" in part["kind"] for part in crates[number]["targets"])
        if number in visited or is_macro:
            continue
        visited.add(number)
        to_visit += [edge["pkg"] for edge in edges[number] if any(kind["kind"] is None for kind in edge["dep_kinds"])]
        crate = crates[number]
        if crate["source"] is not None:
            expression = crate["license"] or f"see {crate['license_file']}"
            yield Crate(crate["name"], crate["version"], expression, Path(crate["manifest_path"]).parent)


def document(package: str, crates: list[Crate]) -> str:
    """Return the text of THIRD-PARTY-LICENSES."""
    users: dict[str, list[str]] = {}
    # Copies of one text differ in their spaces.
    first: dict[str, str] = {}
    for crate in crates:
        for text in crate.texts():
            same = first.setdefault(" ".join(text.replace("http://", "https://").split()), text)
            users.setdefault(same, []).append(crate.name)
    listing = "\n".join(f"{crate.name} {crate.version}: {crate.license}" for crate in crates)
    line = "-" * 80
    texts = "\n".join(f"\n{line}\n{', '.join(sorted(set(names)))}\n{line}\n\n{text}" for text, names in users.items())
    return f"{HEAD.format(package=package.removesuffix('-binding'))}\n{listing}\n{texts}\n"


def problems(crates: list[Crate]) -> list[str]:
    """Say which crates may not be linked, and which have no text."""
    forbidden = [crate for crate in crates if not is_allowed(crate.license)]
    found = [f"{crate.name}: the licence {crate.license} is not allowed" for crate in forbidden]
    return found + [f"{crate.name}: no file with its licence" for crate in crates if not crate.texts()]


def main() -> int:
    """Write the files, or check them."""
    failed = False
    graphs = [dependencies(target) for target in TARGETS]
    for package, folder in PACKAGES.items():
        unique = {(crate.name, crate.version): crate for graph in graphs for crate in linked(package, graph)}
        crates = [unique[key] for key in sorted(unique)]
        for problem in problems(crates):
            failed = True
            print(problem, file=sys.stderr)
        path = folder / "THIRD-PARTY-LICENSES"
        text = document(package, crates)
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            failed = True
            print(f"{path.relative_to(ROOT)} is not current: run `make licenses`", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
