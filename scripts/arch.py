"""Keep the shape of the project: crate edges, purity of the rules, file sizes, versions, nothing of one machine.

Each check takes the root of a tree and returns what is wrong with it; `tests/contract/test_arch.py` shows each failing.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

MAX_LINES = 600
# crate → crates that must not be anywhere below it
FORBIDDEN = {
    "jitney-core": {"tokio", "hyper", "pyo3", "mio", "rustix", "socket2", "tracing", "jitney-server", "jitney-binding"},
    "jitney-server": {"pyo3", "jitney-bench", "jitney-binding"},
    "jitney-bench": {"pyo3", "jitney-core", "jitney-server", "jitney-binding"},
}
RULES = ["crates/core/src", "crates/bench/src/rules"]
IMPURE = re.compile(r"\bstd::(?:fs|net|thread|process|env|io|os)\b|\b(?:Instant|SystemTime)\b")
# Paths that exist on one machine only; put together here so that this file does not hold one.
MACHINE = re.compile(r"(?<![\w.~$}])/(?:" + "|".join(["root", "work", "Users", "home", "mnt"]) + r")/[A-Za-z0-9_]")
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
                problems.append(f"{path.relative_to(root)}:{number}: `{found.group()}` has no place in the rules")
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
    """Tell tests apart: they may be as long as they need to be."""
    return (
        bool({"tests", "proptests"} & set(path.parts)) or path.stem in ("tests", "test") or path.stem.endswith("_tests")
    )


def file_sizes(root: Path) -> list[str]:
    """Hold files to a size with one reason to change; the tests at its end do not count."""
    problems: list[str] = []
    for path in tracked(root):
        if path.suffix not in (".rs", ".py", ".pyi") or is_test(path.relative_to(root)):
            continue
        lines = path.read_text().split("#[cfg(test)]\nmod ")[0].count("\n")
        if lines > MAX_LINES:
            problems.append(f"{path.relative_to(root)}: {lines} lines, at most {MAX_LINES}")
    return problems


def versions(root: Path) -> list[str]:
    """One version, in three places."""
    changelog = re.search(r"^## \[(\d[^\]]*)\]", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    found = {
        "pyproject.toml": tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"],
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


CHECKS: list[Callable[[Path], Iterable[str]]] = [
    crate_edges,
    pure_rules,
    unsafe_code,
    file_sizes,
    versions,
    machine_paths,
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
