"""Build what is published of both packages into `dist/`: wheels for x86-64 and aarch64, and the sources.

A wheel for the stable ABI holds for all versions of Python from 3.11 on. Free-threaded Python has no stable ABI: its
version 3.14 has its own wheel. zig links, because it knows the symbols of the old glibc that `MANYLINUX` promises and
contains a linker and the headers for each target. Rust needs the standard library of the target, which `rustup` adds.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
MANYLINUX = "manylinux2014"
"""glibc 2.17 and newer: all distributions that are still maintained."""
TARGETS = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
PROJECTS = {"jitney": ROOT, "jitney-bench": ROOT / "bench"}
# maturin knows how the interpreters of these names are built, so that none of them must be installed.
INTERPRETERS = {"abi3": "python3.11", "free-threaded": "python3.14t"}
PROGRAMS = Path(sysconfig.get_path("scripts"))


def run(*command: str | Path, folder: Path = ROOT) -> None:
    """Run a command that finds the tools of this environment first; a failure ends the build."""
    environment = os.environ | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    # The tests name an interpreter to link with; a wheel is linked with none.
    environment.pop("PYO3_PYTHON", None)
    ran = subprocess.run(command, cwd=folder, env=environment, check=False)
    if ran.returncode:
        sys.exit(f"this command ended with {ran.returncode}: {' '.join(map(str, command))}")


def add_standard_library(target: str) -> None:
    """Install Rust's standard library for `target`, if `rustup` manages the toolchain."""
    if rustup := shutil.which("rustup"):
        run(rustup, "--quiet", "target", "add", target)


def wheel(target: str, kind: str) -> list[str]:
    """Return the command that builds one wheel. maturin fails if it needs a newer glibc than promised."""
    options = ["--release", "--locked", "--zig", "--compatibility", MANYLINUX]
    return ["maturin", "build", *options, "--target", TARGETS[target], "--interpreter", INTERPRETERS[kind]]


def arguments() -> argparse.Namespace:
    """Read the command line. A part can be built alone, to try it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", default=",".join(TARGETS), help=f"default: {','.join(TARGETS)}")
    parser.add_argument("--kinds", default=",".join(INTERPRETERS), help=f"default: {','.join(INTERPRETERS)}")
    parser.add_argument("--projects", default=",".join(PROJECTS), help=f"default: {','.join(PROJECTS)}")
    parser.add_argument("--no-sources", action="store_true", help="build no source distributions")
    return parser.parse_args()


def main() -> None:
    """Build all parts; print the name, the size and the seconds of each."""
    chosen = arguments()
    targets, kinds, projects = (value.split(",") for value in (chosen.targets, chosen.kinds, chosen.projects))
    for target in targets:
        add_standard_library(TARGETS[target])
    commands = [] if chosen.no_sources else [["maturin", "sdist"]]
    commands += [wheel(target, kind) for target in targets for kind in kinds]
    for project in projects:
        for command in commands:
            started = time.monotonic()
            run(*command, "--out", DIST, folder=PROJECTS[project])
            newest = max(DIST.iterdir(), key=lambda path: path.stat().st_mtime)
            size_mb, took_s = newest.stat().st_size / 1e6, time.monotonic() - started
            print(f"· {newest.name}: {size_mb:.2f} MB, {took_s:.0f} s", flush=True)


if __name__ == "__main__":
    main()
