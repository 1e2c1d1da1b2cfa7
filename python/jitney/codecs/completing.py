"""Sets the default fields of dataclasses, which msgspec leaves out.

msgspec takes a field with a default for set because the class has an attribute of its name. So `vars(item)` lacks the
field. An item that `predict` returns lacks it too, because msgspec encodes all of `__dict__`. Only dataclasses of the
standard library need this; other types cost nothing.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, Final, NamedTuple, cast

from jitney.signature.hints import classes_in, field_types


class _Plan(NamedTuple):
    """What to set in instances of one class."""

    defaults: Sequence[tuple[str, Any]]
    inner: Sequence[str]
    """Fields that may hold other such instances."""


class Completer:
    """Sets default fields in the `__dict__` of instances, also inside lists, dicts and other instances."""

    def __init__(self, plans: Mapping[type[Any], _Plan]) -> None:
        self._plans: Final = plans

    def __call__(self, value: Any) -> Any:
        """Complete a value in place, and return it."""
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
    """Return a decoder of this type that completes what it decodes."""
    complete = _completer(kind, _all_defaults)
    return decode if complete is None else lambda data: complete(decode(data))


def completing(encode: Callable[[Any], bytes], kind: Any) -> Callable[[Any], bytes]:
    """Return an encoder that completes values of this type first; a generated `__init__` sets all but `init=False`."""
    complete = _completer(kind, _uninitialized)
    return encode if complete is None else lambda value: encode(complete(value))


def _completer(kind: Any, defaults_of: Callable[[type[Any]], Sequence[tuple[str, Any]]]) -> Completer | None:
    classes = classes_in(kind)
    defaults = {owner: defaults_of(owner) for owner in classes}
    plans: dict[type[Any], _Plan] = {}
    for owner in classes:
        inner = [name for name, hint in field_types(owner).items() if any(map(defaults.get, classes_in(hint)))]
        if defaults[owner] or inner:
            plans[owner] = _Plan(defaults[owner], inner)
    return Completer(plans) if any(defaults.values()) else None


def _all_defaults(owner: type[Any]) -> list[tuple[str, Any]]:
    return [(field.name, field.default) for field in _defaulted(owner)]


def _uninitialized(owner: type[Any]) -> list[tuple[str, Any]]:
    """Return the defaults that `__init__` does not set; all of them if the user wrote `__init__`."""
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
    """Whether a slot or a property of the class holds this field, not `__dict__`."""
    return hasattr(inspect.getattr_static(owner, name, None), "__set__")
