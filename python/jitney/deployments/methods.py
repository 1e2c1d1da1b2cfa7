"""`@jitney.method`: several methods of one class. Each has its own routes, and all share the workers of the class."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast, overload

from jitney.errors import TargetError
from jitney.signature import grouping

_MARK: Final = "__jitney_method__"
_OPTIONS: Final = ("route", "group_by", "cost", "task", "examples")

RESERVED: Final = {
    "predict": "`predict` is served without @jitney.method; give its options to @jitney.deployment",
    "batch": "/batch is the path for many items",
    "many": "programs send many items with it",
    "metrics": "programs read the metrics with it",
    "close": "a worker calls it at its end",
    "check": "a worker calls it while no batch runs",
}
"""Names that a served method cannot have, and why."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class MethodMark:
    """What `@jitney.method` leaves on a function."""

    options: Mapping[str, Any]


@overload
def method(function: _Function, /) -> _Function: ...
@overload
def method(
    *,
    route: str | None = None,
    group_by: Sequence[grouping.Term] = (),
    cost: grouping.Term | None = None,
    task: str | None = None,
    examples: Sequence[Any] = (),
) -> Callable[[_Function], _Function]: ...
def method(function: Any = None, /, **options: Any) -> Any:
    """Serve a method of a deployment in addition to `predict`, or without it, at `/NAME/METHOD` or at its own `route`.

    It takes and returns batches as `predict` does. Items of two methods never share a batch, and a replica computes one
    batch at a time. All other options are those of the class.
    """
    for key in options:
        if key not in _OPTIONS:
            raise TargetError(
                f"@jitney.method has no option {key!r}, only {', '.join(_OPTIONS)}; give {key!r} to @jitney.deployment"
            )

    def mark(served: Any) -> Any:
        if not inspect.isfunction(served):
            hint = "; put it below @staticmethod or @classmethod" if hasattr(served, "__func__") else ""
            raise TargetError(f"@jitney.method is for a method of a class, not for {served!r}{hint}")
        around = sys._getframe(2 if function is not None else 1).f_locals  # pyright: ignore[reportPrivateUsage]
        name = served.__name__
        if "__qualname__" in around and mark_of(around.get(name)) is not None:  # in the body of a class
            raise TargetError(f"{served.__qualname__}: two methods are called `{name}`; give one another name")
        setattr(served, _MARK, MethodMark(options))
        return served

    return mark if function is None else mark(function)


def mark_of(raw: object) -> MethodMark | None:
    """Return what `@jitney.method` left on this attribute of a class."""
    return getattr(function_of(raw)[0], _MARK, None)


def marked(kind: type) -> dict[str, MethodMark]:
    """Return the served methods of a class by name, in order of definition; those of its bases come first."""
    names = dict.fromkeys(name for each in reversed(kind.__mro__) for name in vars(each))
    marks = {name: mark_of(inspect.getattr_static(kind, name)) for name in names}
    found = {name: mark for name, mark in marks.items() if mark is not None}
    for name in found:
        if name in RESERVED:
            raise TargetError(f"{kind.__qualname__}.{name} cannot be served under this name: {RESERVED[name]}")
        if name.startswith("_") or not name.isascii():
            raise TargetError(
                f"{kind.__qualname__}.{name}: the name of a served method is ASCII and begins with a letter"
            )
    return found


def function_of(raw: object) -> tuple[Callable[..., object], bool]:
    """Return the function behind an attribute of a class, and whether it gets the instance or the class first."""
    if isinstance(raw, staticmethod):
        return cast("staticmethod[..., object]", raw).__func__, False
    if isinstance(raw, classmethod):
        return cast("classmethod[Any, ..., object]", raw).__func__, True
    return cast("Callable[..., object]", raw), True
