"""Parts of a type that cannot be served as annotated, and what to write instead."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, cast, get_args, get_origin

import msgspec

from jitney.signature.arrays import is_array_type
from jitney.signature.hints import Part, is_pillow_class, is_pydantic, walk
from jitney.signature.media_fields import fault_of_array, fault_of_union, holds_media

_PILLOW: Final = "an image comes as jitney.Image: write that, and image.to_pil() in predict"
_MODEL: Final = (
    "a pydantic model has no images and no arrays as fields; take bytes (jitney.Image(bytes) in predict) or list[float]"
)
_READERS: Final = frozenset({"pydantic", "pydantic_core", "annotated_types"})
"""Packages whose metadata in `Annotated` msgspec ignores."""
_WITHOUT_CONSTRAINT: Final = frozenset({"Unit", "DocInfo", "WithJsonSchema", "SkipJsonSchema"})
_ALWAYS_TRUE: Final = {"strict": True, "min_length": 0}
"""Constraints that msgspec enforces in any case."""


def remedy(kind: Any) -> str | None:
    """Return a message about the part of an item that msgspec cannot decode or check, with what to write instead."""
    if is_pillow_class(_base(kind)):
        return "an image comes as jitney.Image: write list[jitney.Image], and image.to_pil() in predict"
    return next((fault for part in walk(kind, into_fields=True) if (fault := _fault(part))), None)


def field_as_default(kind: Any) -> str | None:
    """Return a message about a field whose default would be the object `pydantic.Field(...)` itself."""
    return next((fault for part in walk(kind, into_fields=True) if (fault := _default_fault(part))), None)


def _base(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _fault(part: Part) -> str | None:
    kind, outer, place = part.annotation, part.owner, part.path
    base = _base(kind)
    if is_pillow_class(base):
        return f"{place}{_PILLOW}"
    if outer is not None and is_pydantic(outer) and holds_media(kind):
        return f"{place}{_MODEL}, or make {outer.__qualname__} a msgspec.Struct or a dataclass"
    if fault := fault_of_union(kind) or (fault_of_array(kind) if is_array_type(kind) else None):
        return f"{place}{fault}"
    if outer is not None and is_pydantic(base) and not is_pydantic(outer):
        return f"{place}only pydantic reads {base.__qualname__}; make {outer.__qualname__} a pydantic model too"
    return _default_fault(part) or _constraint_fault(part) or _init_fault(part)


def _init_fault(part: Part) -> str | None:
    base: Any = get_origin(_base(part.annotation)) or _base(part.annotation)
    if not isinstance(base, type) or not dataclasses.is_dataclass(base) or is_pydantic(base):
        return None
    no = dataclasses.MISSING
    made = (field for field in dataclasses.fields(base) if not field.init)
    name = next((field.name for field in made if field.default is no and field.default_factory is no), None)
    if name is None:
        return None
    kind = cast("type[Any]", base).__qualname__
    return f"{kind}.{name}: init=False, and yet clients would have to send it; make it a property of {kind}"


def _default_fault(part: Part) -> str | None:
    base: Any = get_origin(_base(part.annotation)) or _base(part.annotation)
    if not isinstance(base, type) or is_pydantic(base):
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


def _constraint_fault(part: Part) -> str | None:
    """Return a message about a constraint that msgspec ignores, with its `msgspec.Meta` if there is one."""
    extras = get_args(part.annotation)[1:] if get_origin(part.annotation) is Annotated else ()
    ignored = [(extra, asked) for extra in extras if (asked := _constraints(extra))]
    if not ignored:
        return None
    shown = ", ".join(
        _show_call("Field" if _is_field_info(extra) else type(extra).__name__, asked) for extra, asked in ignored
    )
    model = "take a pydantic model" if part.owner is None else f"make {part.owner.__qualname__} a pydantic model"
    together = {name: value for _, asked in ignored for name, value in asked.items()}
    try:
        msgspec.Meta(**together)
    except (TypeError, ValueError, re.error):
        return f"{part.path}only pydantic reads {shown}; {model}, or check it in predict"
    return f"{part.path}only pydantic reads {shown}; write {_show_call('msgspec.Meta', together)}, or {model}"


def _constraints(extra: Any) -> dict[str, Any]:
    """Return the constraints of pydantic's in one metadata of `Annotated`, without those that always hold."""
    kind = cast("type[Any]", type(extra))
    if kind.__module__.partition(".")[0] not in _READERS or kind.__name__ in _WITHOUT_CONSTRAINT:
        return {}
    if _is_field_info(extra):
        inner = {name: value for each in extra.metadata for name, value in _constraints(each).items()}
        return inner | ({"alias": extra.alias} if extra.alias else {})
    names: list[str] = list(getattr(extra, "__dict__", {}))
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    settings: dict[str, Any] = {name: getattr(extra, name) for name in names}
    return {name: value for name, value in settings.items() if value is not None and _ALWAYS_TRUE.get(name) != value}


def _is_field_info(value: object) -> bool:
    kind = cast("type[Any]", type(value))
    return kind.__name__ == "FieldInfo" and kind.__module__.partition(".")[0] == "pydantic"


def _show_call(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_show(value)}' for key, value in arguments.items())})"


def _show(value: Any) -> str:
    return getattr(value, "__qualname__", None) or repr(value)
