"""Each check of the module graph can fail: a check that cannot is worth nothing."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rust_modules", ROOT / "scripts/rust_modules.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


modules: Any = load()

LIB = "//! A crate.\n//!\n//! Floors, from the ground: `low`,\n//! `high`. More words.\n"


@pytest.fixture
def crate(tmp_path: Path) -> Path:
    """A crate of two floors in which everything is in order."""
    folder = tmp_path / "crates/one"
    write(folder, "Cargo.toml", "")
    write(folder, "src/lib.rs", LIB)
    write(folder, "src/low/mod.rs", "//! Folder.\npub mod a;\npub mod b;\n")
    write(folder, "src/low/a.rs", "pub struct Thing;\n")
    write(folder, "src/low/b.rs", "use crate::low::a::Thing;\n// use crate::high::top;\n")
    write(folder, "src/high/mod.rs", "pub mod top;\n")
    write(folder, "src/high/top.rs", "use crate::low::{a::Thing, b};\n")
    return folder


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def found(crate: Path) -> list[str]:
    return list(modules.rust_modules(crate.parents[1]))


def test_a_crate_in_order_has_no_row(crate: Path) -> None:
    assert found(crate) == []


@pytest.mark.parametrize(
    "line",
    ["use crate::low::b;", "use super::b::Other;", "use crate::{low::{b::Other}};", "fn f() { crate::low::b::g() }"],
)
def test_a_circle_of_files_is_found(crate: Path, line: str) -> None:
    write(crate, "src/low/a.rs", f"{line}\npub struct Thing;\n")
    assert "one: circle: low::a , low::b" in found(crate)


def test_a_circle_of_folders_is_found_although_no_file_is_in_one(crate: Path) -> None:
    write(crate, "src/low/deep/first.rs", "use crate::low::wide::first;\n")
    write(crate, "src/low/deep/second.rs", "")
    write(crate, "src/low/wide/first.rs", "")
    write(crate, "src/low/wide/second.rs", "use crate::low::deep::second;\n")
    assert found(crate) == ["one: circle of folders: low::deep , low::wide"]


def test_an_import_upwards_is_found(crate: Path) -> None:
    write(crate, "src/low/c.rs", "use crate::high::other;\n")
    write(crate, "src/high/other.rs", "")
    assert "one: low::c imports high::other, which is on a floor above it" in found(crate)


def test_a_module_without_a_floor_is_found(crate: Path) -> None:
    write(crate, "src/lost.rs", "")
    assert found(crate) == ["one: lib.rs names no floor `lost`"]


@pytest.mark.parametrize("kind", ["pub struct", "pub(crate) enum", "pub trait"])
def test_a_type_name_that_two_modules_define_is_found(crate: Path, kind: str) -> None:
    write(crate, "src/high/top.rs", f"{kind} Thing {{}}\n")
    assert found(crate) == ["one: Thing is the name of several types: high::top, low::a"]


def test_a_crowded_folder_is_found(crate: Path) -> None:
    for number in range(8):
        write(crate, f"src/low/file{number}.rs", "")
    assert found(crate) == []
    write(crate, "src/low/folder/mod.rs", "")
    assert found(crate) == ["one: low: 11 files and folders side by side, at most 10"]


def test_what_tests_import_does_not_count(crate: Path) -> None:
    inline = "#[cfg(test)]\nmod tests {\n    use crate::high::top;\n}\n"
    write(crate, "src/low/a.rs", f"pub struct Thing;\n{inline}")
    write(crate, "src/low/a/tests.rs", "use crate::high::top;\n")
    assert [row for row in found(crate) if "imports" in row or "circle" in row] == []
