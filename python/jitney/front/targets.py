"""Checks a target before anything is started, and finds ready-made models. Imports no target."""

import os
import re
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from jitney.config.suggestion import closest
from jitney.errors import TargetError
from jitney.models import READY_MADE


def find_target(target: str) -> str:
    """Find what workers will import, and return it as they take it; imports nothing."""
    ready_made = READY_MADE.get(target)
    if ready_made is not None:
        if ready_made.missing:
            missing = ", ".join(ready_made.missing)
            raise TargetError(f"the model {target} needs {missing}, which is not installed: {ready_made.install}")
        return ready_made.target
    place, _, name = target.partition(":")
    if name and not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise TargetError(f"{target!r} is not a target: {name!r} is not the name of a class, function or deployment")
    if place.endswith(".ipynb"):
        raise TargetError(
            f"{place!r} is a notebook; notebooks cannot be served; export it: jupyter nbconvert --to script {place}"
        )
    if place.endswith(".py") or os.sep in place:
        _find_file(target, place)
    else:
        _find_package(target, place)
    return target


def _find_file(target: str, place: str) -> None:
    path = Path(place)
    if path.is_file():
        return
    if path.is_dir():
        raise _a_folder(target, path)
    there = sorted(str(near) for near in path.parent.glob("*.py")) if path.parent.is_dir() else []
    inside = "" if path.is_absolute() else f" in {Path.cwd()}"
    raise TargetError(f"there is no file {place!r}{inside}{_hint(place, there)}")


def _a_folder(target: str, folder: Path) -> TargetError:
    inside = sorted(folder.glob("*.py"))
    return TargetError(
        f"{target!r} is a folder; name a file in it, such as {inside[0] if inside else folder / 'model.py'}"
    )


def _find_package(target: str, place: str) -> None:
    top, folder = place.partition(".")[0], Path(place)
    if folder.is_dir() and not (folder / "__init__.py").is_file():
        raise _a_folder(target, folder)
    if not all(part.isidentifier() for part in place.split(".")):
        raise TargetError(
            f"{target!r} is not a target: name a file.py, file.py:Name, package.module:Name or a ready-made model"
        )
    # A worker is started with `-m`, so it finds modules of the current folder too.
    if top in sys.builtin_module_names or PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is not None:
        return
    known = [*READY_MADE, *sorted(str(near) for near in Path().glob("*.py"))]
    raise TargetError(f"there is no ready-made model and no package {top!r}{_hint(place, known)}; see `jitney models`")


def _hint(given: str, known: Sequence[str]) -> str:
    near = closest(given, [*known, *(name.removesuffix(".py") for name in known)])
    if near is None:
        return ""
    match = near if near in known else f"{near}.py"
    return f"; did you mean {match!r}?"
