"""Images and arrays as fields: which fields may be one, and how their JSON Schema is.

msgspec describes a field of a class that it does not know by a hook, which is passed the class and not the
`jitney.Tensor` next to it. So the schema of each field with arrays is made once more, from its annotation with a new
class for each array.
"""

import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, cast, get_args, get_origin

import msgspec

from jitney.signature.arrays import ArraySpec, array_spec, is_array_type, is_numpy
from jitney.signature.hints import classes_in, field_types, holds, is_image, named_type, parts, strip

Describe = Callable[[ArraySpec], dict[str, Any]]


def is_media(annotation: Any) -> bool:
    """Whether this is an image or an array."""
    return is_image(annotation) or is_array_type(annotation)


def holds_media(annotation: Any) -> bool:
    """Whether a value of this annotation may be an image or an array, alone or in lists and unions."""
    return any(map(is_media, parts(annotation)))


def fault_of_union(annotation: Any) -> str | None:
    """Return a message about a union of an image or an array with anything but None."""
    base = strip(annotation)
    if get_origin(base) not in (typing.Union, types.UnionType):
        return None
    choices = [part for part in get_args(base) if part is not type(None)]
    if len(choices) > 1 and any(map(is_media, choices)):
        return "an image or an array may stand in a union with None only; give each type its own field"
    return None


def fault_of_array(annotation: Any) -> str | None:
    """Return a message about an array of a library other than numpy."""
    kind = strip(annotation)
    kind = get_origin(kind) or kind
    if is_numpy(kind):
        return None
    return f"arrays come as np.ndarray, not {kind.__qualname__}; convert it in predict"


def schema_components(kind: Any, template: str, hook: Callable[[type], dict[str, Any]], describe: Describe) -> Any:
    """Return the schema of a type and its definitions, as msgspec does, but with what annotations say of arrays."""
    markers: dict[type, ArraySpec] = {}

    def describe_marked(unknown: type) -> dict[str, Any]:
        if unknown in markers:
            return describe(markers[unknown])
        return {"type": "array"} if is_array_type(unknown) else hook(unknown)  # replaced below

    owners = [
        owner for owner in classes_in(kind) if any(holds(hint, is_array_type) for hint in field_types(owner).values())
    ]
    fields = [
        (owner, name, hint)
        for owner in owners
        for name, hint in field_types(owner).items()
        if holds(hint, is_array_type)
    ]
    asked = [_marked(kind, markers), *owners, *(_marked(hint, markers) for _, _, hint in fields)]
    described, definitions = cast("Any", msgspec.json.schema_components)(
        asked, ref_template=template, schema_hook=describe_marked
    )
    references = dict(zip(owners, described[1 : 1 + len(owners)], strict=True))
    for (owner, name, _), schema in zip(fields, described[1 + len(owners) :], strict=True):
        definition = definitions[references[owner]["$ref"].removeprefix(template.format(name=""))]
        properties = definition.get("properties", {})
        written = _wire_name(owner, name)
        if written in properties:
            properties[written] = {**schema, **_default(properties[written])}
    return described[0], definitions


def _default(schema: dict[str, Any]) -> dict[str, Any]:
    return {"default": schema["default"]} if "default" in schema else {}


def _marked(annotation: Any, markers: dict[type, ArraySpec]) -> Any:
    """Return an annotation with a new class in place of each array."""
    if is_array_type(annotation):
        marker = type("Array", (), {})
        markers[marker] = array_spec("", "", annotation, any_dtype=True)
        return marker
    origin, arguments = get_origin(annotation), get_args(annotation)
    if (named := named_type(annotation)) is not None:
        return _marked(named, markers) if holds(named, is_array_type) else annotation
    if origin is None or not any(holds(part, is_array_type) for part in arguments):
        return annotation
    if origin is Annotated:
        return Annotated[(_marked(arguments[0], markers), *arguments[1:])]
    inner = tuple(_marked(part, markers) for part in arguments)
    return typing.Union[inner] if origin in (typing.Union, types.UnionType) else origin[inner]  # noqa: UP007


def _wire_name(owner: type[Any], name: str) -> str:
    if not issubclass(owner, msgspec.Struct):
        return name
    return next(field.encode_name for field in msgspec.structs.fields(owner) if field.name == name)
