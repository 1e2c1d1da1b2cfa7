"""Names the values that a Literal or an enumeration takes: of an item with another msgspec names only that one."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

_WRONG: Final = re.compile(r"^(?P<what>Invalid enum value .*?)(?: - at `(?P<path>\$[^`]*)`)?$", re.DOTALL)
_STEP: Final = re.compile(r"\.(?P<name>[^.\[]+)|\[[^\]]*\]")
_MOST: Final = 20
"""More values than these are counted: an answer has a bounded length."""

Schema = Mapping[str, Any]


def naming_choices(error: msgspec.ValidationError, schema: Schema) -> msgspec.ValidationError:
    """Return the error with the values that are valid there; of another kind of error return it unchanged."""
    found = _WRONG.match(str(error))
    if found is None:
        return error
    values = list(dict.fromkeys(repr(value) for value in _choices(schema, found["path"] or "$") if value is not None))
    if not values:
        return error
    more = f" and {len(values) - _MOST} more" if len(values) > _MOST else ""
    named = f"{found['what']}, not one of {', '.join(values[:_MOST])}{more}"
    return msgspec.ValidationError(f"{named} - at `{found['path']}`" if found["path"] else named)


def _choices(schema: Schema, path: str) -> Iterator[object]:
    """Return the values of all enumerations at a path such as `$.style` or `$[...].kind`."""
    nodes = [schema]
    for step in _STEP.finditer(path):
        nodes = [below for node in nodes for one in _alternatives(node, schema) for below in _below(one, step["name"])]
    for node in nodes:
        for one in _alternatives(node, schema):
            yield from one.get("enum", ())


def _alternatives(node: Schema, whole: Schema) -> Iterator[Schema]:
    reference: str | None = node.get("$ref")
    if reference is not None:
        node = whole.get("$defs", {}).get(reference.rpartition("/")[2], {})
    unions = [one for name in ("anyOf", "oneOf") for one in node.get(name, ())]
    if not unions:
        yield node
    for one in unions:
        yield from _alternatives(one, whole)


def _below(node: Schema, name: str | None) -> Iterator[Schema]:
    """Return what a field of this name holds, or, without a name, what a list or a dict holds."""
    if name is not None and name in node.get("properties", {}):
        yield node["properties"][name]
    elif name is None:
        inner = [node.get("items"), node.get("additionalProperties"), *node.get("prefixItems", ())]
        yield from (cast("Schema", one) for one in inner if isinstance(one, Mapping))
