"""What is published: checks of wheels can fail, licences and locks are current, workflows are valid."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import jitney
import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = [ROOT / f".github/ISSUE_TEMPLATE/{name}.yml" for name in ("bug", "feature")]
ELF = {"x86_64": 62, "aarch64": 183}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/packages/{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


check: Any = load("check_wheels")
third_party: Any = load("third_party")


def make_wheel(folder: Path, name: str, machine: str = "x86_64", **files: bytes) -> Path:
    path = folder / name
    head = b"\x7fELF".ljust(18, b"\0") + ELF[machine].to_bytes(2, "little")
    contents = {
        "jitney/_core.abi3.so": head,
        "jitney/__init__.py": b"",
        "jitney/_core.pyi": b"",
        "jitney/py.typed": b"",
        "jitney-0.1.0.dist-info/METADATA": b"Name: jitney\nVersion: 0.0.1\n",
        "jitney-0.1.0.dist-info/licenses/LICENSE": b"",
        "jitney-0.1.0.dist-info/licenses/THIRD-PARTY-LICENSES": b"",
        **files,
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for file, content in contents.items():
            wheel.writestr(file, content)
    return path


GOOD = "jitney-0.1.0-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"


def test_a_good_wheel_is_accepted(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, GOOD)
    assert [*check.size(wheel), *check.name(wheel), *check.content(wheel)] == []


@pytest.mark.parametrize(
    "name",
    [
        "jitney-0.1.0-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        "jitney-0.1.0-cp311-abi3-linux_x86_64.whl",
        "jitney-0.1.0-cp311-abi3-manylinux_2_34_x86_64.whl",
        "jitney-0.1.0-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_aarch64.whl",
    ],
)
def test_a_wheel_for_one_python_or_a_new_libc_only_is_found(name: str) -> None:
    assert check.name(Path(name))


def test_a_large_wheel_is_found(tmp_path: Path) -> None:
    large = tmp_path / GOOD
    with large.open("wb") as file:
        file.truncate(check.MAX_BYTES + 1)
    assert check.size(large) == ["8.0 MB, at most 8 MB"]


def test_a_module_of_another_processor_and_files_that_do_not_belong_there_are_found(tmp_path: Path) -> None:
    other = make_wheel(tmp_path, GOOD, machine="aarch64", **{"tests/test_a.py": b"", "jitney/__pycache__/a.pyc": b""})
    assert check.content(other) == [
        "tests/test_a.py does not belong there",
        "jitney/__pycache__/a.pyc does not belong there",
        "jitney/_core.abi3.so: built for another processor than the name of the wheel says",
    ]


def test_metadata_of_another_version_is_found(tmp_path: Path) -> None:
    problems = check.metadata(make_wheel(tmp_path, GOOD), ROOT)
    assert f"Version is 0.0.1, not {jitney.__version__}" in problems
    assert "Project-URL is incomplete" in problems


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT OR Apache-2.0", True),
        ("MIT/Apache-2.0", True),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only", False),
        ("MPL-2.0", False),
        ("MIT AND LGPL-3.0-or-later", False),
    ],
)
def test_only_licences_without_conditions_for_users_are_allowed(expression: str, allowed: bool) -> None:
    assert third_party.is_allowed(expression) is allowed


def test_the_licences_of_what_is_linked_are_current() -> None:
    script = ROOT / "scripts/packages/third_party.py"
    ran = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_cargo_deny_allows_the_same_licences() -> None:
    allowed = re.search(r"^allow = \[(.*?)\]", (ROOT / "deny.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert allowed and set(re.findall(r'"([^"]+)"', allowed[1])) == third_party.ALLOWED


@pytest.mark.parametrize("name", ["build", "dev", "packages", "site"])
def test_a_lock_has_the_versions_that_are_asked_for_and_a_hash_of_each(name: str) -> None:
    pins = [line for line in (ROOT / f"requirements-{name}.in").read_text().splitlines() if not line.startswith("#")]
    locked = re.split(r"\n(?=[a-z])", (ROOT / f"requirements-{name}.txt").read_text())
    found = {entry.split()[0]: "--hash=sha256:" in entry for entry in locked if not entry.startswith("#")}
    bare = {re.sub(r"\[.*?\]", "", name): hashed for name, hashed in found.items()}
    assert [pin for pin in pins if re.sub(r"\[.*?\]", "", pin) not in bare] == []
    assert all(bare.values())


@pytest.mark.parametrize(
    ("schema", "files"), [("github-workflows", WORKFLOWS), ("github-issue-forms", FORMS)], ids=["workflows", "forms"]
)
def test_workflows_and_forms_are_valid_for_github(schema: str, files: list[Path]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("tool", ["actionlint", "zizmor"])
def test_linters_of_workflows_find_nothing(tool: str) -> None:
    found = shutil.which(tool, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        # zizmor is one of the developer tools; actionlint is a program of Go.
        assert tool != "zizmor" or not os.environ.get("JITNEY_REQUIRE_TOOLS"), "zizmor is not installed"
        pytest.skip(f"{tool} is not installed")
    arguments = ["--offline", "--quiet", ROOT / ".github"] if tool == "zizmor" else WORKFLOWS
    ran = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_workflows_call_tasks_that_exist() -> None:
    tasks = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {task for path in WORKFLOWS for task in re.findall(r"run: make ([a-z-]+)", path.read_text())}
    assert called and called <= tasks


RELEASES = (ROOT / "docs/contributing/releases.md").read_text()
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]


def test_the_public_names_are_those_that_are_documented() -> None:
    rows = re.findall(r"^\| [A-Z][\w ]* \| ((?:`\w+`(?:, )?)+) \|$", RELEASES, re.MULTILINE)
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(documented) == sorted(jitney.__all__) == dir(jitney)


def test_pages_and_examples_import_only_modules_that_are_public() -> None:
    public = set(re.findall(r"`(jitney\.\w+)`", RELEASES.split("All other modules")[0]))
    imports = re.compile(r"^\s*(?:from|import) (jitney(?:_bench)?(?:\.\w+)+|jitney_bench)", re.MULTILINE)
    pages = [path for path in PAGES if not {"contributing", "design"} & set(path.parts)]
    used = {(name, path.name) for path in pages for name in imports.findall(path.read_text())}
    assert {name for name, _ in used} <= public, used
    assert used, "the pattern finds nothing"
