"""Each architecture check can fail: a check that cannot is worth nothing."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("arch", ROOT / "scripts/arch.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


arch: Any = load()


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_a_crate_that_reaches_too_far_is_found() -> None:
    tree = "jitney-core v0.1.0\nserde v1.0.0\ntokio v1.0.0 (*)\n"
    assert arch.forbidden_crates("jitney-core", tree) == ["jitney-core depends on tokio"]
    assert arch.forbidden_crates("jitney-server", tree) == []


@pytest.mark.parametrize("file", ["crates/core/src/lane.rs", "crates/bench/src/rules/plan.rs"])
@pytest.mark.parametrize("line", ["use std::fs;", "let now = Instant::now();", "std::thread::sleep(x);"])
def test_impure_rules_are_found(tmp_path: Path, line: str, file: str) -> None:
    write(tmp_path, file, f"// std::fs is fine in a comment\n{line}\n")
    (problem,) = arch.pure_rules(tmp_path)
    assert problem.startswith(f"{file}:2:")


def test_unsafe_code_is_found_outside_the_binding_and_in_a_second_file(tmp_path: Path) -> None:
    write(tmp_path, "crates/binding/src/buffer.rs", "unsafe { x() }\n")
    assert arch.unsafe_code(tmp_path) == []
    write(tmp_path, "crates/server/src/link.rs", "unsafe fn x() {}\n")
    assert len(arch.unsafe_code(tmp_path)) == 2


def test_long_files_are_found_and_tests_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, "src/long.rs", "x\n" * 601)
    write(tmp_path, "src/tested.rs", "x\n" * 500 + "#[cfg(test)]\nmod tests {\n" + "x\n" * 500)
    write(tmp_path, "tests/test_long.py", "x\n" * 2000)
    assert arch.file_sizes(tmp_path) == ["src/long.rs: 601 lines, at most 600"]


def test_versions_that_differ_are_found(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", '[project]\nversion = "0.1.0"\n')
    write(tmp_path, "Cargo.toml", '[workspace.package]\nversion = "0.1.0"\n')
    write(tmp_path, "CHANGELOG.md", "## [0.1.0] - Unreleased\n")
    assert arch.versions(tmp_path) == []
    write(tmp_path, "CHANGELOG.md", "## [0.2.0] - Unreleased\n## [0.1.0]\n")
    assert len(arch.versions(tmp_path)) == 1


def test_paths_of_one_machine_are_found(tmp_path: Path) -> None:
    write(tmp_path, "docs/guide.md", "run `cd /" + "home/me/jitney`\n")
    write(tmp_path, "docs/fine.md", "see https://example.org/home/page and ./work/here\n")
    (problem,) = arch.machine_paths(tmp_path)
    assert problem.startswith("docs/guide.md:1:")
