"""Under `--reload` modules come from their source, whatever byte code is cached."""

import importlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest
from jitney.deployments.fresh import import_fresh


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    finders, modules = list(sys.meta_path), set(sys.modules)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.meta_path[:] = finders
    for name in sys.modules.keys() - modules:
        del sys.modules[name]


def load(name: str) -> str:
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return importlib.import_module(name).WORD


def write(path: Path, word: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"WORD = {word!r}\n")
    os.utime(path, (1_000_000_000, 1_000_000_000))


def test_byte_code_of_a_watched_folder_is_not_used(project: Path) -> None:
    for path in (project / "stale_words.py", project / "stale_package/__init__.py"):
        write(path, "one")
        assert load(path.stem if path.stem != "__init__" else path.parent.name) == "one"
        write(path, "two")
    assert load("stale_words") == "one", "Python by itself takes the byte code of the file as it was"
    import_fresh([str(project)])
    assert load("stale_words") == "two"
    assert load("stale_package") == "two"


def test_byte_code_of_what_is_installed_stays_in_use(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = project / "venv/site-packages"
    write(installed / "installed_words.py", "one")
    monkeypatch.setattr(sys, "path", [str(installed), *sys.path])
    assert load("installed_words") == "one"
    write(installed / "installed_words.py", "two")
    import_fresh([str(project)])
    assert load("installed_words") == "one"


class Editable:
    """A finder like that of a package that was installed with `-e`: it knows where one module is."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_file_location(fullname, self.file) if fullname == "editable_words" else None


def test_modules_of_other_finders_are_read_from_their_source_too(project: Path) -> None:
    file = project / "src" / "editable_words.py"
    write(file, "one")
    sys.meta_path.append(Editable(file))
    assert load("editable_words") == "one"
    write(file, "two")
    assert load("editable_words") == "one"
    import_fresh([str(project)])
    assert load("editable_words") == "two"
    with pytest.raises(ModuleNotFoundError):
        load("no_such_words")
