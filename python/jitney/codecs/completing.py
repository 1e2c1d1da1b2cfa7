"""Dataclasses made whole: msgspec knows of an instance what is in its `__dict__`, and leaves defaults out of there.

It takes a default for set because the class has an attribute of that name, and so would `vars(item)` lack the field,
and the item when it is sent back. Only stdlib dataclasses are concerned; for all other types there is nothing to do.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, Final, NamedTuple, cast, get_args, get_origin, get_type_hints

from jitney.hints import named_type


class _Plan(NamedTuple):
    """What is to be done with instances of one class."""

    defaults: Sequence[tuple[str, Any]]
    inner: Sequence[str]
    """Fields in which other instances may stand."""


class Completer:
    """Sets the fields that stand at their defaults in an instance's own `__dict__`, in whatever it stands."""

    def __init__(self, plans: Mapping[type[Any], _Plan]) -> None:
        self._plans: Final = plans

    def __call__(self, value: Any) -> Any:
        """Return the value itself."""
        plan = self._plans.get(cast("type[Any]", type(value)))
        if plan is not None:
            for name, default in plan.defaults:
                value.__dict__.setdefault(name, default)
            for name in plan.inner:
                self(getattr(value, name, None))
        elif isinstance(value, dict):
            for part in cast("dict[Any, Any]", value).values():
                self(part)
        elif isinstance(value, (list, tuple, set, frozenset)):
            for part in cast("Sequence[Any]", value):
                self(part)
        return cast("Any", value)


def completed(decode: Callable[[Any], Any], kind: Any) -> Callable[[Any], Any]:
    """Make a decoder of this type one that gives whole values."""
    complete = _completer(kind, _all_defaults)
    return decode if complete is None else lambda data: complete(decode(data))


def completing(encode: Callable[[Any], bytes], kind: Any) -> Callable[[Any], bytes]:
    """Make an encoder one that writes values of this type whole; what a usual `__init__` has made is whole already."""
    complete = _completer(kind, _uninitialized)
    return encode if complete is None else lambda value: encode(complete(value))


def _completer(kind: Any, defaults_of: Callable[[type[Any]], Sequence[tuple[str, Any]]]) -> Completer | None:
    classes = _classes(kind)
    defaults = {owner: defaults_of(owner) for owner in classes}
    plans: dict[type[Any], _Plan] = {}
    for owner in classes:
        inner = [name for name, hint in _hints(owner).items() if any(map(defaults.get, _classes(hint)))]
        if defaults[owner] or inner:
            plans[owner] = _Plan(defaults[owner], inner)
    return Completer(plans) if any(defaults.values()) else None


def _classes(kind: Any) -> set[type[Any]]:
    """Find the classes with fields that a value of this type may hold, its own among them."""
    found: set[type[Any]] = set()
    seen: list[Any] = []
    waiting = [kind]
    while waiting:
        part = waiting.pop()
        if part in seen:
            continue
        seen.append(part)
        waiting += [named_type(part), *get_args(part)]
        owner = get_origin(part) or part
        if isinstance(owner, type) and (hints := _hints(cast("type[Any]", owner))):
            found.add(cast("type[Any]", owner))
            waiting += hints.values()
    return found


def _hints(owner: type[Any]) -> dict[str, Any]:
    if owner.__module__ == "builtins":
        return {}
    try:
        return get_type_hints(owner, include_extras=True)
    except Exception:  # no class that can be decoded, or answers of a type that nobody can describe
        return {}


def _all_defaults(owner: type[Any]) -> list[tuple[str, Any]]:
    return [(field.name, field.default) for field in _defaulted(owner)]


def _uninitialized(owner: type[Any]) -> list[tuple[str, Any]]:
    """Those that an `__init__` of dataclasses' making does not set, or all if somebody wrote another one."""
    code: CodeType | None = getattr(owner.__init__, "__code__", None)
    is_generated = code is not None and code.co_filename == "<string>"
    return [(field.name, field.default) for field in _defaulted(owner) if not (field.init and is_generated)]


def _defaulted(owner: type[Any]) -> list[dataclasses.Field[Any]]:
    if not dataclasses.is_dataclass(owner) or not owner.__dictoffset__:
        return []
    return [
        field
        for field in dataclasses.fields(owner)
        if field.default is not dataclasses.MISSING and not _has_place(owner, field.name)
    ]


def _has_place(owner: type[Any], name: str) -> bool:
    """Whether values of this name are kept by a slot or a property of the class, not in `__dict__`."""
    return hasattr(inspect.getattr_static(owner, name, None), "__set__")
