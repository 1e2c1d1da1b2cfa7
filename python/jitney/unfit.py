"""Which part of an item's type cannot be decoded, and what to write instead; asked when a type has been refused."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, cast, get_args, get_origin, get_type_hints

from jitney import schemas
from jitney.arrays import is_array_type
from jitney.types import Image

_IMAGE: Final = "take `bytes` and open them in predict: PIL.Image.open(io.BytesIO(...))"
_ARRAY: Final = "take `list[float]`, or lists of it, and make an array in predict: np.array(...)"


def remedy(kind: Any) -> str | None:
    """Name the part that is an image, an array or a model of pydantic's in a place of another, and what helps."""
    return _find(kind, "", None, set())


def in_a_struct(items: Sequence[Any]) -> str:
    """Say how an image or an array goes into a struct, if some of these items are one."""
    image = f"; for an image {_IMAGE}" if Image in items else ""
    return image + (f"; for an array {_ARRAY}" if any(map(is_array_type, items)) else "")


def _find(kind: Any, place: str, outer: type[Any] | None, seen: set[type[Any]]) -> str | None:
    base: Any = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if base is Image or schemas.is_pillow_type(base):
        return f"{place}an image can be the item, not a part of one; {_IMAGE}"
    if is_array_type(kind):
        return f"{place}an array can be a parameter of predict, not a part of an item; {_ARRAY}"
    if outer is not None and schemas.is_pydantic(base) and not schemas.is_pydantic(outer):
        return f"{place}only pydantic reads {base.__qualname__}; make {outer.__qualname__} a pydantic model too"
    if not isinstance(base, type) or get_args(base):
        parts = [(part, place, outer) for part in get_args(base)]
    elif base in seen:
        return None
    else:
        owner = cast("type[Any]", base)
        seen.add(owner)
        parts = [(hint, f"{owner.__qualname__}.{name}: ", owner) for name, hint in _fields(owner).items()]
    return next((found for part in parts if (found := _find(*part, seen))), None)


def _fields(kind: type[Any]) -> dict[str, Any]:
    try:
        hints = get_type_hints(kind, include_extras=True)
        return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}
    except Exception:  # whatever it is, it has been refused for that already
        return {}
