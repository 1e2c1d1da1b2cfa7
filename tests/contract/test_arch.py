"""Each architecture check can fail: a check that cannot is worth nothing."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))


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
    write(tmp_path, "python/long.py", "x\n" * 501)
    write(tmp_path, "crates/bench/src/tested.rs", "x\n" * 400 + "#[cfg(test)]\nmod tests {\n" + "x\n" * 500)
    write(tmp_path, "python/tests/test_long.py", "x\n" * 2000)
    assert arch.file_sizes(tmp_path) == ["python/long.py: 501 lines, at most 500"]
    write(tmp_path, "elsewhere/longer.rs", "x\n" * 601)
    assert len(arch.file_sizes(tmp_path)) == 2


@pytest.mark.parametrize("crate", ["core", "server", "binding"])
def test_the_limits_hold_for_every_crate(tmp_path: Path, crate: str) -> None:
    write(tmp_path, f"crates/{crate}/src/long.rs", "x\n" * 501)
    for name in ["mod", *"abcdefghij"]:
        write(tmp_path, f"crates/{crate}/src/full/{name}.rs", "")
    assert arch.file_sizes(tmp_path) == [f"crates/{crate}/src/long.rs: 501 lines, at most 500"]
    assert arch.folder_sizes(tmp_path) == []
    write(tmp_path, f"crates/{crate}/src/full/k.rs", "")
    assert arch.folder_sizes(tmp_path) == [f"crates/{crate}/src/full: 11 files, at most 10"]


def test_crowded_folders_are_found(tmp_path: Path) -> None:
    for number in range(11):
        write(tmp_path, f"python/crowded/a{number}.py", "")
        write(tmp_path, f"python/fine/{number % 2}/a{number}.py", "")
    assert arch.folder_sizes(tmp_path) == ["python/crowded: 11 files, at most 10"]


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("pyproject.toml", 'version = "0.1.0"'),
        ("pyproject.toml", "jitney-bench==0.1.0"),
        ("bench/pyproject.toml", 'version = "0.1.0"'),
        ("bench/pyproject.toml", "jitney==0.1.0"),
        ("Cargo.toml", "0.1.0"),
        ("CHANGELOG.md", "0.1.0"),
    ],
)
def test_versions_that_differ_are_found(name: str, old: str, tmp_path: Path) -> None:
    extra = '[project.optional-dependencies]\nbench = ["jitney-bench==0.1.0"]\n'
    write(tmp_path, "pyproject.toml", f'[project]\nversion = "0.1.0"\n{extra}')
    write(tmp_path, "bench/pyproject.toml", '[project]\nversion = "0.1.0"\ndependencies = ["jitney==0.1.0"]\n')
    write(tmp_path, "Cargo.toml", '[workspace.package]\nversion = "0.1.0"\n')
    write(tmp_path, "CHANGELOG.md", "## [0.1.0] - Unreleased\n## [0.0.9]\n")
    assert arch.versions(tmp_path) == []
    file = tmp_path / name
    file.write_text(file.read_text().replace(old, old.replace("0.1.0", "0.2.0"), 1))
    assert len(arch.versions(tmp_path)) == 1


def test_paths_of_one_machine_are_found(tmp_path: Path) -> None:
    write(tmp_path, "docs/guide.md", "run `cd /" + "home/me/jitney`\n")
    write(tmp_path, "docs/fine.md", "see https://example.org/home/page and ./work/here\n")
    (problem,) = arch.machine_paths(tmp_path)
    assert problem.startswith("docs/guide.md:1:")


def test_files_and_names_that_the_tables_for_contributors_have_wrong_are_found(tmp_path: Path) -> None:
    architecture, contributing = arch.WHERE_TO_CHANGE
    write(tmp_path, "crates/a/src/here.rs", "fn stamp() {}\n")
    write(tmp_path, architecture, "| a header | `crates/a/src/here.rs` (`stamp`) and `crates/a/NAME.rs` |\n")
    write(tmp_path, contributing, "`crates/a/src/gone.rs` stands in no table\n")
    assert arch.named_files(tmp_path) == []
    write(tmp_path, contributing, "| a | `crates/a/src/gone.rs` |\n| b | `crates/a/src/here.rs` (`stamp`, `seal`) |\n")
    assert arch.named_files(tmp_path) == [
        f"{contributing}: there is no crates/a/src/gone.rs",
        f"{contributing}: crates/a/src/here.rs has no seal",
    ]
