"""Imports files of a project from their source, always: what `--reload` needs.

Python takes byte code in `__pycache__` for current if the source has the size, and the second of change, that it had
when the byte code was written. Two saves of equal size within one second are one to it.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

FOLDERS_VARIABLE: Final = "JITNEY_RELOAD_FOLDERS"
"""Holds the watched folders, separated as in PATH. Set by `--reload` for the server, whose workers inherit it."""
INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages. Their byte code stays in use: they are not edited, and they are many."""


class FreshLoader(SourceFileLoader):
    """Compiles the source of a module, and neither reads nor writes byte code."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module from its file."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class FreshFinder:
    """Finds modules as all other finders do, and has those of watched folders loaded by `FreshLoader`."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders: Final = [Path(folder).resolve() for folder in folders]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module; None if no other finder does."""
        others: list[Any] = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec: ModuleSpec | None = next((spec for spec in specs if spec is not None), None)
        if spec is not None and type(spec.loader) is SourceFileLoader and self._is_watched(Path(spec.loader.path)):
            spec.loader = FreshLoader(fullname, spec.loader.path)
        return spec

    def _is_watched(self, file: Path) -> bool:
        file = file.resolve()
        return any(map(file.is_relative_to, self._folders)) and INSTALLED.isdisjoint(file.parts)


def import_fresh(folders: Sequence[str]) -> None:
    """Import modules of these folders, or below, from source from now on."""
    sys.meta_path.insert(0, FreshFinder(folders))
