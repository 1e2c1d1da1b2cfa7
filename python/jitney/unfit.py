"""Which part of a type cannot be served as it says, and what to write instead."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final, NamedTuple, cast, get_args, get_origin, get_type_hints

import msgspec

from jitney import schemas
from jitney.arrays import is_array_type
from jitney.hints import named_type
from jitney.types import Image

_IMAGE: Final = "take `bytes` and open them in predict: PIL.Image.open(io.BytesIO(...))"
_ARRAY: Final = "take `list[float]`, or lists of it, and make an array in predict: np.array(...)"
_READERS: Final = frozenset({"pydantic", "pydantic_core", "annotated_types"})
"""Packages whose words in `Annotated` msgspec passes over without a word."""
_SAYS_NOTHING: Final = frozenset({"Unit", "DocInfo", "WithJsonSchema", "SkipJsonSchema"})
_HELD_ANYWAY: Final = {"strict": True, "min_length": 0}


class _Part(NamedTuple):
    """A type that stands somewhere in another."""

    annotation: Any
    place: str
    """Where, as a message begins; empty at the top."""
    outer: type[Any] | None
    """The class whose field it is."""


def remedy(kind: Any) -> str | None:
    """Name the part of an item that msgspec cannot decode or would not hold to what it says, and what helps."""
    if schemas.is_pillow_type(_base(kind)):
        return "an image comes as jitney.Image: write list[jitney.Image], and image.to_pil() in predict"
    return next((fault for part in _parts(kind) if (fault := _fault(part))), None)


def field_as_default(kind: Any) -> str | None:
    """Name the field of a class that takes `pydantic.Field(...)` itself for its default, and what helps."""
    return next((fault for part in _parts(kind) if (fault := _default_fault(part))), None)


def in_a_struct(items: Sequence[Any]) -> str:
    """Say how an image or an array goes into a struct, if some of these items are one."""
    image = f"; for an image {_IMAGE}" if Image in items else ""
    return image + (f"; for an array {_ARRAY}" if any(map(is_array_type, items)) else "")


def _parts(kind: Any, place: str = "", outer: type[Any] | None = None, seen: set[Any] | None = None) -> Iterator[_Part]:
    seen = set() if seen is None else seen
    yield _Part(kind, place, outer)
    base = _base(kind)
    named = named_type(base)
    if named is not None:
        if base in seen:
            return
        seen.add(base)
        parts = [(named, place, outer)]
    elif not isinstance(base, type) or get_args(base):
        parts = [(part, place, outer) for part in get_args(base)]
    elif base in seen:
        return
    else:
        owner = cast("type[Any]", base)
        seen.add(owner)
        parts = [(hint, f"{owner.__qualname__}.{name}: ", owner) for name, hint in _fields(owner).items()]
    for part in parts:
        yield from _parts(*part, seen)


def _base(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _fault(part: _Part) -> str | None:
    kind, place, outer = part
    base = _base(kind)
    if base is Image or schemas.is_pillow_type(base):
        return f"{place}an image can be the item, not a part of one; {_IMAGE}"
    if is_array_type(kind):
        return f"{place}an array can be a parameter of predict, not a part of an item; {_ARRAY}"
    if outer is not None and schemas.is_pydantic(base) and not schemas.is_pydantic(outer):
        return f"{place}only pydantic reads {base.__qualname__}; make {outer.__qualname__} a pydantic model too"
    return _default_fault(part) or _constraint_fault(part) or _init_fault(part)


def _init_fault(part: _Part) -> str | None:
    base: Any = get_origin(_base(part.annotation)) or _base(part.annotation)
    if not isinstance(base, type) or not dataclasses.is_dataclass(base) or schemas.is_pydantic(base):
        return None
    no = dataclasses.MISSING
    made = (field for field in dataclasses.fields(base) if not field.init)
    name = next((field.name for field in made if field.default is no and field.default_factory is no), None)
    if name is None:
        return None
    kind = cast("type[Any]", base).__qualname__
    return f"{kind}.{name}: init=False, and yet clients would have to send it; make it a property of {kind}"


def _default_fault(part: _Part) -> str | None:
    base: Any = get_origin(_base(part.annotation)) or _base(part.annotation)
    if not isinstance(base, type) or schemas.is_pydantic(base):
        return None
    kind = cast("type[Any]", base)
    fields: Sequence[Any] = ()
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
    elif issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
    name = next((field.name for field in fields if _is_field_info(field.default)), None)
    if name is None:
        return None
    return (
        f"{kind.__qualname__}.{name}: only pydantic reads `= Field(...)`, here it would be the value itself; "
        f"write Annotated[..., msgspec.Meta(...)] = default, or make {kind.__qualname__} a pydantic model"
    )


def _constraint_fault(part: _Part) -> str | None:
    """Say what msgspec passes over, and the same in its own words if it has them."""
    extras = get_args(part.annotation)[1:] if get_origin(part.annotation) is Annotated else ()
    unread = [(extra, held) for extra in extras if (held := _held(extra))]
    if not unread:
        return None
    shown = ", ".join(
        _called("Field" if _is_field_info(extra) else type(extra).__name__, held) for extra, held in unread
    )
    model = "take a pydantic model" if part.outer is None else f"make {part.outer.__qualname__} a pydantic model"
    held = {name: value for _, holds in unread for name, value in holds.items()}
    try:
        msgspec.Meta(**held)
    except (TypeError, ValueError, re.error):
        return f"{part.place}only pydantic reads {shown}; {model}, or check it in predict"
    return f"{part.place}only pydantic reads {shown}; write {_called('msgspec.Meta', held)}, or {model}"


def _held(extra: Any) -> dict[str, Any]:
    """Tell what this asks of a value beyond its type; nothing if it is not pydantic's, or if msgspec sees to it."""
    kind = cast("type[Any]", type(extra))
    if kind.__module__.partition(".")[0] not in _READERS or kind.__name__ in _SAYS_NOTHING:
        return {}
    if _is_field_info(extra):
        held = {name: value for inner in extra.metadata for name, value in _held(inner).items()}
        return held | ({"alias": extra.alias} if extra.alias else {})
    names: list[str] = list(getattr(extra, "__dict__", {}))
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    held: dict[str, Any] = {name: getattr(extra, name) for name in names}
    return {name: value for name, value in held.items() if value is not None and _HELD_ANYWAY.get(name) != value}


def _is_field_info(value: object) -> bool:
    kind = cast("type[Any]", type(value))
    return kind.__name__ == "FieldInfo" and kind.__module__.partition(".")[0] == "pydantic"


def _called(name: str, held: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_shown(value)}' for key, value in held.items())})"


def _shown(value: Any) -> str:
    return getattr(value, "__qualname__", None) or repr(value)


def _fields(kind: type[Any]) -> dict[str, Any]:
    try:
        hints = get_type_hints(kind, include_extras=True)
        return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}
    except Exception:  # whatever it is, it has been refused for that already
        return {}
