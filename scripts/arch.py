"""Keep the shape of the project: crate and module edges, pure rules, file sizes, versions, no paths of one machine.

Each check takes the root of a tree and returns what is wrong with it; `tests/contract/test_arch.py` shows each failing.
"""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from rust_modules import rust_modules

MAX_LINES = 500
MAX_FILES = 10
"""Source files side by side in a folder; `mod.rs` and `lib.rs`, which list the others, do not count."""
MEASURED = ["python", "bench/python", "crates"]
"""What these limits hold for."""
MAX_LINES_ELSEWHERE = 600
# crate → crates that must not be anywhere below it
FORBIDDEN = {
    "jitney-core": {"tokio", "hyper", "pyo3", "mio", "rustix", "socket2", "tracing", "jitney-server", "jitney-binding"},
    "jitney-channel": {"hyper", "pyo3", "jitney-core", "jitney-server", "jitney-binding", "jitney-bench"},
    "jitney-server": {"pyo3", "jitney-bench", "jitney-binding"},
    "jitney-binding": {"jitney-bench"},
    "jitney-bench": {"pyo3", "jitney-core", "jitney-server", "jitney-binding"},
    "jitney-bench-binding": {"jitney-core", "jitney-server", "jitney-binding"},
}
RULES = ["crates/core/src", "crates/bench/src/rules"]
IMPURE = re.compile(r"\bstd::(?:fs|net|thread|process|env|io|os)\b|\b(?:Instant|SystemTime)\b")
# Paths that exist on one machine only; put together here so that this file does not hold one.
MACHINE = re.compile(r"(?<![\w.~$}])/(?:" + "|".join(["root", "work", "Users", "home", "mnt"]) + r")/[A-Za-z0-9_]")
WHERE_TO_CHANGE = ["docs/design/0001-architecture.md", "docs/contributing/README.md"]
NAMED = re.compile(r"`((?:crates|python|tests|docs|scripts)/[\w./-]+)`(?: \(((?:`[^`]+`(?:, )?)+)\))?")
GENERATED = {"Cargo.lock", "LICENSE"}


def tracked(root: Path) -> list[Path]:
    """Every file of the project, as git knows it, or all that are there if this is not a checkout."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listing.stdout.splitlines() if listing.returncode == 0 else []
    files = [root / name for name in names] or [path for path in root.rglob("*") if "target" not in path.parts]
    return [path for path in files if path.is_file() and ".venv" not in path.parts]


def crate_names(tree: str) -> set[str]:
    """Names of the crates in the output of `cargo tree --prefix none`."""
    return {line.split()[0] for line in tree.splitlines() if line.strip()}


def forbidden_crates(crate: str, tree: str) -> list[str]:
    """Say which crates below `crate` must not be there."""
    return [f"{crate} depends on {name}" for name in sorted(crate_names(tree) & FORBIDDEN[crate])]


def crate_edges(root: Path) -> list[str]:
    """Rules know no motion, motion knows no Python."""
    problems: list[str] = []
    for crate in FORBIDDEN:
        arguments = ["cargo", "tree", "--locked", "--package", crate, "--edges", "normal,build", "--prefix", "none"]
        tree = subprocess.run(arguments, cwd=root, capture_output=True, text=True, check=False)
        problems += forbidden_crates(crate, tree.stdout) if tree.returncode == 0 else [tree.stderr.strip()]
    return problems


def pure_rules(root: Path) -> list[str]:
    """No clock, no I/O and no thread in the rules."""
    problems: list[str] = []
    for path in sorted(path for folder in RULES for path in (root / folder).rglob("*.rs")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if found := IMPURE.search(line.split("//")[0]):
                problems.append(f"{path.relative_to(root)}:{number}: `{found.group()}` does not belong in the rules")
    return problems


def unsafe_code(root: Path) -> list[str]:
    """`unsafe` lives in one reviewed file of the binding."""
    holders = [
        path
        for path in sorted((root / "crates").rglob("*.rs"))
        if any(
            re.search(r"\bunsafe\s*(?:\{|impl|fn|extern)", line.split("//")[0])
            for line in path.read_text().splitlines()
        )
    ]
    outside = [path for path in holders if "binding" not in path.parts]
    problems = [f"{path.relative_to(root)}: unsafe outside crates/binding" for path in outside]
    if len(holders) > 1:
        problems.append(f"unsafe in more than one file: {', '.join(str(path.relative_to(root)) for path in holders)}")
    return problems


def is_test(path: Path) -> bool:
    """Whether a file is a test. Tests have no limit of lines."""
    return (
        bool({"tests", "proptests"} & set(path.parts)) or path.stem in ("tests", "test") or path.stem.endswith("_tests")
    )


def sources(root: Path) -> list[Path]:
    """Return the source files of a tree, relative to its root; tests are none."""
    files = [path.relative_to(root) for path in tracked(root) if path.suffix in (".rs", ".py", ".pyi")]
    return [path for path in files if not is_test(path)]


def is_measured(path: Path) -> bool:
    """Whether the limits hold for a file or folder."""
    return any(path.is_relative_to(name) for name in MEASURED)


def file_sizes(root: Path) -> list[str]:
    """Limit the lines of a file; tests at the end of a Rust file do not count."""
    problems: list[str] = []
    for path in sources(root):
        lines = (root / path).read_text().split("#[cfg(test)]\nmod ")[0].count("\n")
        most = MAX_LINES if is_measured(path) else MAX_LINES_ELSEWHERE
        if lines > most:
            problems.append(f"{path}: {lines} lines, at most {most}")
    return problems


def folder_sizes(root: Path) -> list[str]:
    """Limit the source files side by side in a folder."""
    counted = (path for path in sources(root) if is_measured(path) and path.name not in ("mod.rs", "lib.rs"))
    counts = Counter(path.parent for path in counted)
    return [f"{folder}: {count} files, at most {MAX_FILES}" for folder, count in counts.items() if count > MAX_FILES]


def versions(root: Path) -> list[str]:
    """One version, wherever it is written; the two distributions require each other in it."""
    changelog = re.search(r"^## \[(\d[^\]]*)\]", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    project, bench = (
        tomllib.loads((root / name).read_text())["project"] for name in ("pyproject.toml", "bench/pyproject.toml")
    )
    found = {
        "pyproject.toml": project["version"],
        "bench/pyproject.toml": bench["version"],
        "the extra `bench`": project["optional-dependencies"]["bench"][0].removeprefix("jitney-bench=="),
        "what jitney-bench requires": bench["dependencies"][0].removeprefix("jitney=="),
        "Cargo.toml": tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"],
        "CHANGELOG.md": changelog.group(1) if changelog else "none",
    }
    if len(set(found.values())) == 1:
        return []
    return ["versions differ: " + ", ".join(f"{name} {version}" for name, version in found.items())]


def machine_paths(root: Path) -> list[str]:
    """Nothing that only exists where it was written."""
    problems: list[str] = []
    for path in tracked(root):
        if path.name in GENERATED:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if found := MACHINE.search(line):
                problems.append(f"{path.relative_to(root)}:{number}: a path of one machine: {found.group()}…")
    return problems


def named_files(root: Path) -> list[str]:
    """Say which files do not exist that the tables for contributors name, and which names are not in them.

    A file is named by its path from the root; the names in brackets after it, as in `a/b.rs` (`c`, `d`), stand in it.
    """
    problems: list[str] = []
    for page in WHERE_TO_CHANGE:
        rows = [line for line in (root / page).read_text().splitlines() if line.startswith("| ")]
        for path, names in (match.groups("") for row in rows for match in NAMED.finditer(row)):
            place = root / path.split("NAME")[0]
            if not place.exists():
                problems.append(f"{page}: there is no {path}")
            elif names and place.is_file():
                text = place.read_text()
                missing = [name for name in re.findall(r"`([^`]+)`", names) if name not in text]
                problems += [f"{page}: {path} has no {name}" for name in missing]
    return problems


CHECKS: list[Callable[[Path], Iterable[str]]] = [
    crate_edges,
    rust_modules,
    pure_rules,
    unsafe_code,
    file_sizes,
    folder_sizes,
    versions,
    machine_paths,
    named_files,
]


def main() -> int:
    """Run every check; list everything that is wrong."""
    root = Path(__file__).resolve().parent.parent
    failed = False
    for check in CHECKS:
        problems = list(check(root))
        failed |= bool(problems)
        print(f"{'✗' if problems else '✓'} {check.__name__.replace('_', ' ')}")
        for problem in problems:
            print(f"    {problem}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
