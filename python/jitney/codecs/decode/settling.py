"""Gives the arrays in a decoded item the dtype that their annotation says, and checks their shape.

msgspec passes the class of a field to `dec_hook`, and not the `jitney.Tensor` next to it. So each annotation that holds
arrays is compiled, once, to a function that walks its values. Types without arrays have none.
"""

import types
import typing
from collections.abc import Callable
from typing import Any, Final, cast, get_args, get_origin

import msgspec

from jitney.codecs.decode.media import settled
from jitney.codecs.refusals import MOST_LEVELS, too_deep
from jitney.signature.arrays import array_spec, is_array_type
from jitney.signature.hints import field_types, filled, holds, strip

Settle = Callable[[Any, str, int], Any]
"""A value, the path to it and how many values it is inside of; returns the value that stands there instead."""


def settling(decode: Callable[[Any], Any], kind: Any, *, any_dtype: bool = False) -> Callable[[Any], Any]:
    """Return a decoder of this type that settles the arrays of what it decodes."""
    if not holds(kind, is_array_type):
        return decode
    settle = _Walk(any_dtype=any_dtype).of(kind)
    return lambda data: settle(decode(data), "$", 0)


class _Walk:
    """Makes functions that settle, one per annotation; a class may hold itself."""

    def __init__(self, *, any_dtype: bool) -> None:
        self._any_dtype: Final = any_dtype
        """Whether an array whose annotation says no dtype may have any, as in answers; else it is float32."""
        self._classes: Final[dict[Any, dict[str, tuple[str, Settle]]]] = {}

    def of(self, annotation: Any) -> Settle:
        """Return the function for values of this annotation."""
        if is_array_type(annotation):
            spec = array_spec("", "", annotation, any_dtype=self._any_dtype)
            return lambda array, path, depth: settled(spec, array, path)
        base = strip(annotation)
        origin, arguments = get_origin(base) or base, get_args(base)
        if not holds(annotation, is_array_type):
            return lambda value, path, depth: value
        if origin in (typing.Union, types.UnionType):
            return self._union([(_class_of(part), self.of(part)) for part in arguments if holds(part, is_array_type)])
        if field_types(origin):
            return self._class(base, origin, arguments)
        inner = [self.of(part) for part in arguments if part is not Ellipsis]
        if origin is tuple:
            return self._tuple(inner)
        return self._dict(inner[1]) if len(inner) > 1 else self._list(inner[0])

    @staticmethod
    def _union(choices: list[tuple[Any, Settle]]) -> Settle:
        def settle(value: Any, path: str, depth: int) -> Any:
            return next((inner(value, path, depth) for kind, inner in choices if isinstance(value, kind)), value)

        return settle

    @staticmethod
    def _dict(inner: Settle) -> Settle:
        return lambda value, path, depth: {
            name: inner(part, f"{path}[{name!r}]", depth + 1) for name, part in value.items()
        }

    @staticmethod
    def _list(inner: Settle) -> Settle:
        return lambda value, path, depth: [
            inner(part, f"{path}[{place}]", depth + 1) for place, part in enumerate(value)
        ]

    @staticmethod
    def _tuple(inner: list[Settle]) -> Settle:
        def settle(value: Any, path: str, depth: int) -> Any:
            each = inner * len(value) if len(inner) == 1 else inner
            return tuple(
                one(part, f"{path}[{place}]", depth + 1)
                for place, (one, part) in enumerate(zip(each, value, strict=True))
            )

        return settle

    def _class(self, base: Any, origin: Any, arguments: tuple[Any, ...]) -> Settle:
        if base not in self._classes:
            fields = self._classes[base] = {}  # first, because a class may hold itself
            given = dict(zip(getattr(origin, "__parameters__", ()), arguments, strict=False))
            wire = _wire_names(origin)
            for name, hint in field_types(origin).items():
                hint = filled(hint, given)  # noqa: PLW2901 -- the same, with the types of a generic class
                if holds(hint, is_array_type):
                    fields[name] = wire.get(name, name), self.of(hint)
        fields = self._classes[base]

        def settle(value: Any, path: str, depth: int) -> Any:
            if depth > MOST_LEVELS:  # only classes can hold themselves
                raise too_deep()
            if type(value) is dict:  # of a TypedDict
                parts = cast("dict[str, Any]", value)
                return parts | {
                    name: each(parts[name], f"{path}.{name}", depth + 1)
                    for name, (_, each) in fields.items()
                    if name in parts
                }
            named: Any = value
            if issubclass(origin, tuple):
                return named._replace(
                    **{
                        name: each(getattr(named, name), f"{path}.{name}", depth + 1)
                        for name, (_, each) in fields.items()
                    }
                )
            for name, (written, each) in fields.items():
                _set(value, name, each(getattr(value, name), f"{path}.{written}", depth + 1))
            return value

        return settle


def _class_of(annotation: Any) -> Any:
    base = strip(annotation)
    kind = get_origin(base) or base
    return dict if typing.is_typeddict(kind) else kind


def _wire_names(kind: Any) -> dict[str, str]:
    if not issubclass(kind, msgspec.Struct):
        return {}
    return {field.name: field.encode_name for field in msgspec.structs.fields(kind)}


def _set(value: Any, name: str, new: Any) -> None:
    """Set a field, also of what is frozen: no other code has this value yet."""
    if isinstance(value, msgspec.Struct):
        msgspec.structs.force_setattr(value, name, new)
    else:
        object.__setattr__(value, name, new)
