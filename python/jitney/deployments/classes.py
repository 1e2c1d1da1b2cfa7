"""A class or function of the program as a target: workers import it again, by the name of its module or by its path."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from jitney.deployments import targets
from jitney.deployments.composed.composition import Composed, ComposedDeployment
from jitney.deployments.configured import ConfiguredDeployment
from jitney.deployments.deployment import MARK, Deployment
from jitney.errors import TargetError
from jitney.models import READY_MADE

_MAINS = ("__main__", "__mp_main__")
"""What a program's own file is called in it, and in what `multiprocessing` spawns."""


def deployment_of(kind: Callable[..., Any] | Composed) -> Deployment:
    """Return what `configure`, `chain` or `together` made, or what `@jitney.deployment` left on this very object."""
    if isinstance(kind, Composed):
        return kind.deployment
    if isinstance(kind, ConfiguredDeployment):
        return cast("Deployment", kind)
    found = getattr(kind, "__dict__", {}).get(MARK)
    if not isinstance(found, Deployment) or found.obj is not kind:
        raise TargetError(f"{_name(kind)} is not a deployment; put @jitney.deployment above it")
    return found


def target_of(kind: Callable[..., Any] | Composed) -> str:
    """Return the target under which a worker finds this class or function."""
    found = deployment_of(kind)
    name = _name(kind)
    if isinstance(kind, (ConfiguredDeployment, Composed)):
        return _target_of_object(cast("object", kind), found)
    if "." in kind.__qualname__:
        raise TargetError(f"{name} is defined inside something else; workers import it, so define it at the top level")
    module = sys.modules.get(kind.__module__)
    if kind.__module__ in _MAINS:
        return f"{_main_place(name, module)}:{kind.__name__}"
    return f"{kind.__module__}:{kind.__name__}"


def advised_target(used: Any, name: str) -> str | None:
    """Return what to give to `jitney serve` for a deployment that another one uses; None if that is not known.

    `used` is a class, a function, what `configure` returns, or only its name. It was imported by the user of it.
    """
    if name in READY_MADE:
        return name
    if isinstance(used, str):
        return None
    try:
        place, _, variable = target_of(used).rpartition(":")
    except TargetError:
        return None
    file = Path(getattr(sys.modules.get(place), "__file__", None) or "")
    return f"{file.name}:{variable}" if file.parent == Path.cwd() else f"{place}:{variable}"


def _target_of_object(value: object, deployment: Deployment) -> str:
    module = sys.modules.get(deployment.module)
    known = vars(module) if module is not None else {}
    variable = next((name for name, held in known.items() if held is value), None)
    if variable is None:
        raise TargetError(
            f"{value!r} has no name at the top level of {deployment.module}; workers import it by its name, so "
            f"write there: {deployment.name.replace('-', '_').replace('.', '_')} = {_maker(deployment)}(...)"
        )
    place = _main_place(variable, module) if deployment.module in _MAINS else deployment.module
    return f"{place}:{variable}"


def _maker(deployment: Deployment) -> str:
    return deployment.obj.__qualname__ if isinstance(deployment, ComposedDeployment) else "jitney.configure"


def _main_place(name: str, main: ModuleType | None) -> str:
    file = str(getattr(main, "__file__", None) or "<string>")
    if "get_ipython" in vars(main or sys) or file.startswith("<"):  # `python -` calls its script <stdin>
        raise TargetError(
            f"{name} was typed into a notebook or a prompt, and workers are other processes: they cannot import it. "
            f"Write it into a file, in a notebook by beginning its cell with %%writefile models.py, and run "
            f'"models.py" or import it from there'
        )
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":  # python -m package.module
        return str(spec.name)
    return str(Path(file).resolve())


def refuse_while_importing() -> None:
    """Refuse to start an engine while a worker imports this program for one of its classes."""
    target = targets.importing()
    if target is not None:
        raise TargetError(
            'put what this program does under  if __name__ == "__main__":  -- workers import its file again, and one '
            f"that imports {target!r} was about to start its own engine"
        )


def _name(kind: object) -> str:
    return getattr(kind, "__qualname__", repr(kind))
