"""JSON Schemas of items and answers, each self-contained."""

from collections.abc import Callable
from typing import Any, Final, Literal

from jitney.errors import TargetError
from jitney.signature.arrays import ANY_DTYPE, ArraySpec
from jitney.signature.hints import by_pydantic, holds, is_image, is_pillow_class, show
from jitney.signature.media_fields import Describe, is_media, schema_components
from jitney.signature.unsupported import remedy

IMAGE: Final[dict[str, Any]] = {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/*"}
_TEMPLATE: Final = "#/$defs/{name}"


def of_type(where: str, kind: Any) -> dict[str, Any]:
    """Describe the input; TargetError if neither msgspec nor pydantic can decode it, or not as it says."""
    refused = f"{where}: items of {show(kind)} cannot be decoded"
    if (not by_pydantic(kind) or holds(kind, is_media)) and (found := remedy(kind)):
        raise TargetError(f"{refused}: {found}")
    try:
        return _pydantic(kind, "validation") if by_pydantic(kind) else _msgspec(kind)
    except NameError as error:
        raise TargetError(
            f"{where}: in {show(kind)} the name `{error.name}` is not defined; move that type to the top of its module"
        ) from error
    except TargetError:
        raise
    except Exception as error:
        # The libraries' message about a type is enough; their own frames would add nothing.
        is_of_library = isinstance(error, TypeError) or type(error).__module__.startswith("pydantic")
        raise TargetError(f"{refused}: {remedy(kind) or _reason(error)}") from (None if is_of_library else error)


def _reason(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    # pydantic says what is wrong first and where to read on below; msgspec says it at the end.
    return lines[0] if type(error).__module__.startswith("pydantic") else lines[-1]


def of_answer(kind: Any) -> dict[str, Any]:
    """Describe what goes out; an answer that no schema can describe may still be encoded, so it is left open."""
    try:
        return _pydantic(kind, "serialization") if by_pydantic(kind) else _msgspec(kind, _open, of_answer_field)
    except Exception:
        return {}


def of_array(spec: ArraySpec) -> dict[str, Any]:
    """Describe one array of one item as nested lists."""
    elements = [{"type": "number"}, {"type": "boolean"}] if spec.dtype == ANY_DTYPE else [_element(spec.dtype)]
    if spec.shape is None:
        return {"anyOf": [*elements, {"type": "array", "items": {}}], "description": f"nested lists of {spec.show()}"}
    schema: dict[str, Any] = _element(spec.dtype) if spec.dtype != ANY_DTYPE else {}
    for axis in reversed(spec.shape):
        bounds = {} if axis is None else {"minItems": axis, "maxItems": axis}
        schema = {"type": "array", "items": schema, **bounds}
    return {**schema, "description": spec.show()}


def of_field(spec: ArraySpec) -> dict[str, Any]:
    """Describe an array that is a field: as lists, as a file, or as its parts; in msgpack the bytes are raw."""
    data = {"type": "string", "contentEncoding": "base64"}
    file = {**data, "contentMediaType": "application/x-npy", "description": "a .npy file, or the elements alone"}
    dtype = {"type": "string"} if spec.dtype == ANY_DTYPE else {"const": spec.dtype}
    shape = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    parts = {"dtype": dtype, "shape": shape, "data": data}
    parts = {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}
    return {"anyOf": [of_array(spec), file, parts], "x-array": spec.show()}


def of_answer_field(spec: ArraySpec) -> dict[str, Any]:
    """Describe an array that is a field of an answer: lists in JSON; in msgpack an object of its parts."""
    return {**of_array(spec), "x-array": spec.show()}


def of_arrays(specs: tuple[ArraySpec, ...]) -> dict[str, Any]:
    """Describe one array by itself, or several by name."""
    if len(specs) == 1:
        return of_array(specs[0])
    names = [spec.name for spec in specs]
    return {"type": "object", "properties": {spec.name: of_array(spec) for spec in specs}, "required": names}


def _element(dtype: str) -> dict[str, Any]:
    """Describe one element; an integer beyond its type is an error, so the bounds are part of the description."""
    if dtype == "bool" or dtype.startswith("float"):
        return {"type": "boolean" if dtype == "bool" else "number"}
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    least, most = (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return {"type": "integer", "minimum": least, "maximum": most}


def _media(kind: type) -> dict[str, Any]:
    """Describe an image; msgspec asks for every class that it does not know."""
    if is_image(kind):
        return IMAGE
    raise NotImplementedError


def _open(kind: type) -> dict[str, Any]:
    return IMAGE if is_image(kind) or is_pillow_class(kind) else {"title": kind.__name__}


def _msgspec(
    kind: Any, hook: Callable[[type], dict[str, Any]] = _media, describe: Describe = of_field
) -> dict[str, Any]:
    schema, definitions = schema_components(kind, _TEMPLATE, hook, describe)
    reference = schema.get("$ref")
    if isinstance(reference, str) and len(schema) == 1:
        # The item's own definition stands at the top, unless it refers to itself.
        name = reference.removeprefix(_TEMPLATE.format(name=""))
        top = definitions[name]
        if reference not in str(definitions):
            definitions.pop(name)
        schema = top
    return {**schema, "$defs": definitions} if definitions else schema


def _pydantic(kind: Any, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    from jitney.signature.pydantic.adapter import Adapter  # noqa: PLC0415 -- it imports pydantic

    return Adapter(kind).json_schema(mode)
