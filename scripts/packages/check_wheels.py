"""Check the files in `dist/` without running them: names, sizes, symbols of libc, contents, licences.

`make wheels` ends with this. Each check returns what is wrong; `tests/contract/test_packages.py` shows each failing.
"""

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_BYTES = 8_000_000
"""A wheel that is larger is slow to install, and has something in it that does not belong there."""
PLATFORM = re.compile(r"manylinux2014_(?P<machine>x86_64|aarch64)\.manylinux_2_17_(?P=machine)")
MACHINES = {"x86_64": 62, "aarch64": 183}
"""Name of a processor → its number in the head of an ELF file."""
BELONGS = re.compile(
    r"(jitney|jitney_bench)/([\w./-]+\.(py|pyi|so|html|js|css|json)|py\.typed|[\w/]+/(LICENSE|NOTICE))"
    r"|[\w.-]+\.dist-info/(METADATA|RECORD|WHEEL|entry_points\.txt|licenses/(LICENSE|THIRD-PARTY-LICENSES)|sboms/[\w.-]+\.json)"
)


def size(path: Path) -> list[str]:
    """Limit the size of a file."""
    found = path.stat().st_size
    return [f"{found / 1e6:.1f} MB, at most {MAX_BYTES / 1e6:.0f} MB"] if found > MAX_BYTES else []


def name(path: Path) -> list[str]:
    """Check the tags: one wheel for all versions of Python, and one for free-threaded Python."""
    _, _, python, abi, platform = path.stem.split("-")
    problems: list[str] = []
    if (python, abi) not in {("cp311", "abi3"), ("cp314", "cp314t")}:
        problems.append(f"the tags {python}-{abi} are not expected")
    if not PLATFORM.fullmatch(platform):
        problems.append(f"the platform {platform} is not manylinux2014")
    return problems


def content(path: Path) -> list[str]:
    """Check which files are in the wheel, and for which processor its extension module is."""
    expected = next((number for key, number in MACHINES.items() if path.stem.endswith(key)), None)
    with zipfile.ZipFile(path) as wheel:
        names = [entry.filename for entry in wheel.infolist() if not entry.is_dir()]
        problems = [f"{name} does not belong there" for name in names if not BELONGS.fullmatch(name)]
        modules = [name for name in names if name.endswith(".so")]
        if len(modules) != 1:
            problems.append(f"{len(modules)} extension modules, and not 1")
        for module in modules:
            head = wheel.read(module)[:20]
            if int.from_bytes(head[18:20], "little") != expected:
                problems.append(f"{module}: built for another processor than the name of the wheel says")
    for suffix in ("licenses/LICENSE", "licenses/THIRD-PARTY-LICENSES", "py.typed", ".pyi"):
        if not any(name.endswith(suffix) for name in names):
            problems.append(f"no {suffix}")
    return problems


def metadata(path: Path, project: Path) -> list[str]:
    """Compare what an index shows with what pyproject.toml says."""
    wanted = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    with zipfile.ZipFile(path) as wheel:
        text = next(wheel.read(name).decode() for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    found = Parser().parsestr(text)
    pairs = {
        "Name": wanted["name"],
        "Version": wanted["version"],
        "Requires-Python": wanted["requires-python"],
        "License-Expression": wanted["license"],
    }
    problems = [f"{key} is {found[key]}, not {value}" for key, value in pairs.items() if found[key] != value]
    if len(found.get_all("Project-URL", [])) != len(wanted["urls"]):
        problems.append("Project-URL is incomplete")
    return problems


def symbols(path: Path) -> list[str]:
    """Have auditwheel read the symbols: it knows the oldest libc that the wheel runs with."""
    auditwheel = Path(sysconfig.get_path("scripts"), "auditwheel")
    ran = subprocess.run([auditwheel, "show", path], capture_output=True, text=True, check=False)
    said = " ".join(ran.stdout.split())
    # Of two names for one platform, auditwheel says the newer form.
    found = re.search(r'platform tag: "(manylinux_2_(\d+)_\w+)"', said)
    if found is None:
        return [f"auditwheel finds no platform: {said or ran.stderr.strip()}"]
    return [f"needs {found.group(1)}"] if int(found.group(2)) > 17 else []


def sources(path: Path) -> list[str]:
    """Check that a source distribution has what it is built from."""
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    needed = ["Cargo.lock", "Cargo.toml", "pyproject.toml", "LICENSE", "THIRD-PARTY-LICENSES", "PKG-INFO"]
    problems = [f"no {name}" for name in needed if not any(found.split("/")[-1] == name for found in names)]
    return problems + [f"{name} was built" for name in names if name.endswith((".so", ".pyc"))]


def problems_of(path: Path) -> Iterable[str]:
    """Return what is wrong with one file of `dist/`."""
    yield from size(path)
    if path.suffix == ".whl":
        yield from name(path)
        yield from content(path)
        yield from metadata(path, ROOT / "bench" if path.name.startswith("jitney_bench") else ROOT)
        yield from symbols(path)
    else:
        yield from sources(path)


def main() -> int:
    """Check all files of a folder; default: `dist/`."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    files = sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])
    if not files:
        sys.exit(f"{folder} has no wheel: run `make wheels`")
    failed = False
    for path in files:
        problems = list(problems_of(path))
        failed |= bool(problems)
        print(f"{'✗' if problems else '✓'} {path.name}: {path.stat().st_size / 1e6:.2f} MB")
        for problem in problems:
            print(f"    {problem}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
