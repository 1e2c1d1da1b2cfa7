"""Whether decoding an item calls functions that the user wrote: those must run on the thread of `predict`."""

import dataclasses
import enum
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from jitney.signature.annotations import Input
from jitney.signature.hints import by_pydantic, classes_in

_AFTER_INIT: Final = ("__post_init__", "__attrs_attrs__")
"""Names of methods that decoding may call: msgspec's and dataclasses'; attrs classes may have several."""


def runs_user_code(declared: Input) -> bool:
    """Whether decoding items of this input may run code of the user's, as far as their type says."""
    if declared.kind != "object":
        return False
    if by_pydantic(declared.item):
        from jitney.signature.pydantic.adapter import Adapter  # noqa: PLC0415 -- it imports pydantic

        return Adapter(declared.item).runs_functions
    return any(map(_has_function, classes_in(declared.item)))


def _has_function(kind: type[Any]) -> bool:
    if any(hasattr(kind, name) for name in _AFTER_INIT):
        return True
    if issubclass(kind, enum.Enum):
        return getattr(kind._missing_, "__func__", None) is not getattr(enum.Enum._missing_, "__func__", None)
    return any(factory.__module__ != "builtins" for factory in _default_factories(kind))


def _default_factories(kind: type[Any]) -> Iterable[Any]:
    if dataclasses.is_dataclass(kind):
        factories = [field.default_factory for field in dataclasses.fields(kind)]
        return [factory for factory in factories if factory is not dataclasses.MISSING]
    if issubclass(kind, msgspec.Struct):
        factories = [field.default_factory for field in msgspec.structs.fields(kind)]
        return [factory for factory in factories if factory is not msgspec.NODEFAULT]
    return ()
