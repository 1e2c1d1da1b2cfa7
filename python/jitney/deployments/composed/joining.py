"""Whether what one deployment returns is what another one takes, and what several deployments return together."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, cast

from jitney.codecs.plain import plain
from jitney.errors import TargetError
from jitney.signature.annotations import Input, Output, Signature
from jitney.signature.arrays import ANY_DTYPE, ArraySpec
from jitney.signature.hints import show, strip

Read = Sequence[tuple[str, str, Signature]]
"""What each answer is called, the name of its deployment, and what that takes and returns."""

_BYTES: Final = ("bytes", "image")
_FOR_READING: Final = frozenset({"title", "description", "default", "examples"})
"""Parts of a JSON Schema that say nothing about which values are valid."""


def chained(where: str, stages: Read) -> Signature:
    """Return what a chain takes and returns; TargetError if a stage does not take what the one before it returns."""
    for _, name, signature in stages:
        _refuse_parts(where, name, signature.output)
    for (_, before, given), (_, after, taken) in pairwise(stages):
        why = misfit(given.output, taken.input)
        if why:
            raise TargetError(
                f"{where}: {before} returns {_returned(given.output)}, and {after} takes {_taken(taken.input)}: {why}"
            )
    return Signature(stages[0][2].input, stages[-1][2].output)


def side_by_side(where: str, members: Read) -> Signature:
    """Return what several deployments of one item take and return; TargetError if they do not take the same."""
    _, first, signature = members[0]
    for _, name, other in members:
        _refuse_parts(where, name, other.output)
        if _form(other.input) != _form(signature.input):
            raise TargetError(
                f"{where}: {first} takes {_taken(signature.input)}, and {name} takes {_taken(other.input)}: all get "
                "the same item"
            )
    outputs = [(label, other.output) for label, _, other in members]
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    arrays: list[ArraySpec] = []
    for label, output in outputs:
        arrays += [replace(spec, name=_label(label, spec.name)) for spec in output.arrays]
        schema, own = _moved(label, cast("dict[str, Any]", plain(output.schema)))
        definitions |= own
        if output.kind == "arrays":
            properties |= {_label(label, name): one for name, one in schema.get("properties", {}).items()}
        else:
            properties[label] = schema
    whole: dict[str, Any] = {"type": "object", "properties": properties, "required": list(properties)}
    are_arrays = all(output.kind in ("array", "arrays") and output.arrays for _, output in outputs)
    output = Output(
        "arrays" if are_arrays else "object",
        arrays=tuple(arrays) if are_arrays else (),
        schema=whole | ({"$defs": definitions} if definitions else {}),
    )
    return Signature(signature.input, output)


def misfit(given: Output, taken: Input) -> str | None:
    """Say why the answers of one deployment are not the items of another one; None if they are."""
    if given.kind == "any":
        return "annotate what the first one returns"
    if taken.kind == "arrays":
        return _arrays_misfit(given, taken)
    fits = given.kind == taken.kind or (given.kind in _BYTES and taken.kind in _BYTES)
    if fits and taken.kind == "object":
        fits = strip(given.item) == strip(taken.item) or _same(given.schema, taken.schema)
    return None if fits else "they must be the same"


def _arrays_misfit(given: Output, taken: Input) -> str | None:
    if not given.arrays or (given.kind == "array") != (len(given.arrays) == 1 and not given.arrays[0].name):
        return "they must be the same"
    if len(given.arrays) == len(taken.arrays) == 1:
        pairs = [(given.arrays[0], taken.arrays[0])]
    else:
        named = {spec.name: spec for spec in given.arrays}
        missing = [spec.name for spec in taken.arrays if spec.name not in named]
        if missing:
            return f"there is no array {missing[0]}"
        pairs = [(named[spec.name], spec) for spec in taken.arrays]
    fits = all(_array_fits(one, other) for one, other in pairs)
    return None if fits else "they must have one dtype and the same axes"


def _array_fits(given: ArraySpec, taken: ArraySpec) -> bool:
    if given.dtype not in (ANY_DTYPE, taken.dtype):
        return False
    if given.shape is None or taken.shape is None:
        return True
    return len(given.shape) == len(taken.shape) and all(
        one == other or one is None or other is None for one, other in zip(given.shape, taken.shape, strict=True)
    )


def _same(given: Mapping[str, Any], taken: Mapping[str, Any]) -> bool:
    """Whether two schemas allow the same; an item that may be anything may be this too."""
    bare = _bare(plain(taken))
    return bare in (True, {}) or _bare(plain(given)) == bare


def _bare(schema: Any) -> Any:
    if isinstance(schema, dict):
        members = cast("dict[str, Any]", schema)
        return {key: _bare(value) for key, value in members.items() if key not in _FOR_READING}
    if isinstance(schema, list):
        return [_bare(value) for value in cast("list[Any]", schema)]
    return schema


def _form(taken: Input) -> tuple[object, ...]:
    arrays = [(spec.name if len(taken.arrays) > 1 else "", spec.dtype, spec.shape) for spec in taken.arrays]
    item = None if taken.kind != "object" else json.dumps(_bare(plain(taken.schema)), sort_keys=True)
    return taken.kind, arrays, item


def _refuse_parts(where: str, name: str, output: Output) -> None:
    if output.part is not None:
        raise TargetError(
            f"{where}: {name} answers in parts, and the front passes on whole answers; call it in an "
            "`async def predict` with jitney.uses and .stream(item)"
        )


def _moved(label: str, schema: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a schema to be put into another one, and its definitions under names that no other member has."""
    text = json.dumps(schema).replace('"#/$defs/', f'"#/$defs/{label}.')
    moved: dict[str, Any] = json.loads(text)
    return moved, {f"{label}.{name}": one for name, one in moved.pop("$defs", {}).items()}


def _label(label: str, name: str) -> str:
    return f"{label}.{name}" if name else label


def _returned(output: Output) -> str:
    return _shown(output.kind, output.item, output.arrays)


def _taken(taken: Input) -> str:
    return _shown(taken.kind, taken.item, taken.arrays)


def _shown(kind: str, item: Any, arrays: Sequence[ArraySpec]) -> str:
    if arrays:
        return ", ".join(f"{spec.name + ': ' if spec.name else ''}{spec.show()}" for spec in arrays)
    return kind if item is None or kind in ("text", "bytes", "image") else show(item)
