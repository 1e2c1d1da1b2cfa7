"""Finds the deployments of a target: `file.py`, `file.py:Name`, `package.module` or `package.module:Name`."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, cast

from jitney.config.option import unknown
from jitney.deployments.composed.composition import Composed, ComposedDeployment
from jitney.deployments.configured import ConfiguredDeployment
from jitney.deployments.deployment import MARK, Deployment
from jitney.deployments.fresh import FreshLoader
from jitney.errors import JitneyError, TargetError
from jitney.failures import one_line, printable, user_line

_importing: list[str] = []


def importing() -> str | None:
    """Return the target that is being imported right now, if any."""
    return _importing[-1] if _importing else None


def load_target(target: str) -> list[Deployment]:
    """Import a target and return its deployments in order of definition; their types and terms are checked.

    TargetError says what is wrong, with which value, and what to do; an error of the user's own code is its cause.
    """
    place, name = _split(target)
    _importing.append(target)
    try:
        module = _import_file(target, place) if place.endswith(".py") else _import_module(target, place)
    finally:
        _importing.pop()
    found = _named(target, module, name) if name else _defined_in(target, module)
    _check_names(target, found)
    for each in found:
        for method in each.served:
            method.compiled_terms()
    return found


def _split(target: str) -> tuple[str, str | None]:
    place, separator, name = target.rpartition(":")
    if not separator:
        return target, None
    if not place or not name:
        raise TargetError(f"target {target!r} is not of the form file.py, file.py:Name or package.module:Name")
    return place, name


def _import_file(target: str, place: str) -> ModuleType:
    path = Path(place).resolve()
    if not path.is_file():
        raise TargetError(f"target {target!r}: there is no file {path}")
    if sys.path[:1] != [str(path.parent)]:
        sys.path.insert(0, str(path.parent))
    name = path.stem
    held = sys.modules.get(name)
    if held is not None:
        if getattr(held, "__file__", None) == str(path):
            return held
        # A file may be called as a module that is loaded already, such as `types.py`.
        name = f"_jitney_target_{name}"
    spec = importlib.util.spec_from_file_location(name, path, loader=FreshLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise _failed_import(target, error) from error
    return module


def _import_module(target: str, name: str) -> ModuleType:
    if (
        name.endswith((".toml", ".json", ".ipynb"))
        or "/" in name
        or not all(part.isidentifier() for part in name.split("."))
    ):
        raise TargetError(
            f"target {target!r}: `{name}` is neither a Python file (file.py) nor a module (package.module)"
        )
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = f"; did you mean `{name}.py`?" if Path(f"{name}.py").is_file() else ""
            raise TargetError(f"target {target!r}: there is no module `{error.name}`{hint}") from None
        raise _failed_import(target, error) from error
    except (Exception, SystemExit) as error:
        raise _failed_import(target, error) from error


def _failed_import(target: str, error: BaseException) -> TargetError:
    error.__traceback__ = _user_frames(error.__traceback__)
    what = printable(error) + user_line(error) if isinstance(error, JitneyError) else one_line(error)
    if isinstance(error, SystemExit):
        what = f'it exits while being imported (code {error.code}); guard that with if __name__ == "__main__"'
    if isinstance(error, ImportError) and "no known parent package" in str(error):
        what += f"; a file alone is in no package: serve it as a module: {_as_module(target)}"
    if type(error).__name__ == "PydanticSchemaGenerationError" and "ndarray" in str(error):
        what += (
            "; a pydantic model has no arrays as fields: make it a msgspec.Struct or a dataclass, or take list[float]"
        )
    return TargetError(failed_import(target) + what)


def _as_module(target: str) -> str:
    """Spell the target of a file as that of a module, from where we are or from the folder above the file's."""
    place, name = _split(target)
    path, here = Path(place).resolve().with_suffix(""), Path.cwd()
    is_below = path.parent.parent.is_relative_to(here)
    parts = path.relative_to(here).parts if is_below else (path.parent.name, path.name)
    return ".".join(parts) + (f":{name}" if name else "") + ("" if is_below else f", in {path.parent.parent}")


def failed_import(target: str) -> str:
    """Begin the message of a target that cannot be imported."""
    return f"importing {target!r} failed: "


def _user_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Drop the frames above the user's code: ours and those of the import system."""
    while traceback is not None and _is_machinery(traceback.tb_frame.f_code.co_filename):
        traceback = traceback.tb_next
    return traceback


def _is_machinery(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<frozen importlib") or filename == importlib.__file__


def _deployment_of(value: Any) -> Deployment | None:
    """Return what stands for itself, or what the decorator left on this very object, not on a class above it."""
    if isinstance(value, Composed):
        return value.deployment
    if isinstance(value, ConfiguredDeployment):
        return cast("Deployment", value)
    found = getattr(value, "__dict__", {}).get(MARK)
    return found if found is not None and found.obj is value else None


def _all_in(module: ModuleType) -> list[tuple[str, Deployment]]:
    pairs = [(name, _deployment_of(value)) for name, value in vars(module).items()]
    unique: dict[int, tuple[str, Deployment]] = {}
    for name, found in pairs:
        if found is not None:
            unique.setdefault(id(found), (name, found))
    return list(unique.values())


def _defined_in(target: str, module: ModuleType) -> list[Deployment]:
    everything = _all_in(module)
    own = [found for _, found in everything if found.module == module.__name__]
    if own:
        return own
    if everything:
        names = ", ".join(name for name, _ in everything)
        raise TargetError(
            f"target {target!r} defines no deployments, but imports {names}; name one: {target}:{everything[0][0]}"
        )
    raise TargetError(f"target {target!r} has no deployments in it; did you forget @jitney.deployment?")


def _named(target: str, module: ModuleType, name: str) -> list[Deployment]:
    value = getattr(module, name, None)
    found = _deployment_of(value) or next((found for _, found in _all_in(module) if found.name == name), None)
    if found is not None:
        return [found]
    if value is not None:
        raise TargetError(f"target {target!r}: `{name}` is not a deployment; did you forget @jitney.deployment?")
    raise TargetError(f"target {target!r}: {unknown('deployment', name, [known for known, _ in _all_in(module)])}")


def _check_names(target: str, found: Sequence[Deployment]) -> None:
    seen: dict[str, Deployment] = {}
    for each in found:
        if each.name in seen:
            first, second = seen[each.name].obj.__qualname__, each.obj.__qualname__
            how = "jitney.configure" if isinstance(each, ConfiguredDeployment) else "@jitney.deployment"
            how = each.obj.__qualname__ if isinstance(each, ComposedDeployment) else how
            raise TargetError(
                f"target {target!r}: {first} and {second} are both called `{each.name}`; "
                f"give one another name: {how}(name=...)"
            )
        seen[each.name] = each
