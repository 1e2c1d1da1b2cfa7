"""The terms of `group_by` and `cost`: what users write, and what the front evaluates without Python.

The front reads a field from the bytes of an item, so what it reads must be what `predict` sees. Whatever could make
the two differ is refused when the deployment is loaded.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

from jitney.config.option import unknown
from jitney.errors import TargetError
from jitney.signature.annotations import Input
from jitney.signature.arrays import ArraySpec
from jitney.signature.fields import Field, scalar_types, struct_fields
from jitney.signature.hints import strip

Unit = Literal["characters", "bytes", "axis"]
_UNITS: tuple[str, ...] = get_args(Unit)


@dataclass(frozen=True)
class length:
    """The length of the item itself, or of its field or array `of`.

    In characters (str), bytes (str as UTF-8, bytes, images) or elements of the first axis (arrays, lists); if no
    unit is given, the natural one of the type.
    """

    of: str | None = None
    unit: Unit | None = None

    def __post_init__(self) -> None:
        if self.unit is not None and self.unit not in _UNITS:
            raise TargetError(f"length: the unit is one of {', '.join(_UNITS)}, not {self.unit!r}")


@dataclass(frozen=True)
class bucket:
    """A number as the index of the first of `edges` (ascending) that is not below it; above all: their count."""

    source: str | length
    edges: Sequence[float]

    def __post_init__(self) -> None:
        edges = tuple(self.edges)
        if not edges or not all(map(math.isfinite, edges)) or any(low >= high for low, high in pairwise(edges)):
            raise TargetError(f"bucket: edges are ascending finite numbers, at least one, not {self.edges!r}")
        object.__setattr__(self, "edges", edges)


Term = str | length | bucket


def compile_group_by(where: str, terms: Sequence[Term], declared: Input) -> list[dict[str, Any]]:
    """Return `group_by` as the manifest has it, or refuse it."""
    return [_term(f"{where}: group_by", term, declared) for term in terms]


def compile_cost(where: str, term: Term | None, declared: Input) -> dict[str, Any] | None:
    """Return `cost` as the manifest has it, or refuse it."""
    if term is None:
        return None
    compiled = _term(f"{where}: cost", term, declared)
    if not isinstance(term, bucket):
        _check_number(f"{where}: cost", compiled["source"])
    return compiled


def _term(where: str, term: object, declared: Input) -> dict[str, Any]:
    if isinstance(term, bucket):
        source = _source(where, term.source, declared)
        _check_number(f"{where}: bucket", source)
        return {"source": source, "edges": [float(edge) for edge in term.edges]}
    return {"source": _source(where, term, declared), "edges": None}


def _check_number(where: str, source: dict[str, Any]) -> None:
    if "field" in source and not {"int", "float"} >= set(source["field"]["types"]):
        name, types = source["field"]["name"], source["field"]["types"]
        raise TargetError(f"{where}: `{name}` must be a number, but it is {' or '.join(types)}")


def _source(where: str, term: object, declared: Input) -> dict[str, Any]:
    if isinstance(term, length):
        return {"length": _length(where, term, declared)}
    if isinstance(term, str):
        return {"field": _scalar_field(where, term, declared)}
    raise TargetError(f"{where}: {term!r} is not a term; write a field's name, jitney.length() or jitney.bucket()")


def _field(where: str, name: str, declared: Input) -> Field:
    if declared.kind != "object":
        raise TargetError(f"{where}: `{name}`: only items that are structs have fields; these are {declared.kind}")
    fields = struct_fields(where, declared.item)
    by_name = {field.name: field for field in fields}
    found = by_name.get(name) or next((field for field in fields if field.wire_name == name), None)
    if found is None:
        raise TargetError(f"{where}: {unknown('field', name, by_name)}")
    if found.refusal is not None:
        raise TargetError(f"{where}: `{name}` {found.refusal}")
    return found


def _scalar_field(where: str, name: str, declared: Input) -> dict[str, Any]:
    found = _field(where, name, declared)
    types, literals = scalar_types(f"{where}: `{name}`", found.annotation)
    compiled: dict[str, Any] = {"name": found.wire_name, "types": types, "literals": literals}
    if not found.has_default:
        return compiled  # without the key: null would be the default None
    default = found.default
    if types == ["float"] and type(default) is int:
        default = float(default)
    if not _is_scalar(default):
        raise TargetError(f"{where}: `{name}` has the default {default!r}, which no JSON of 64-bit numbers can say")
    return compiled | {"default": default}


def _is_scalar(default: object) -> bool:
    if isinstance(default, float):
        return math.isfinite(default)
    if isinstance(default, int):
        return -(2**63) <= default < 2**63
    return default is None or isinstance(default, str)


def _length(where: str, term: length, declared: Input) -> dict[str, Any]:
    where = f"{where}: length({'' if term.of is None else repr(term.of)})"
    if declared.kind == "arrays":
        return {"of": _array(where, term.of, declared.arrays).name, "unit": _unit(where, term, ("axis",))}
    if term.of is None:
        return {"of": None, "unit": _unit(where, term, _units(where, declared.item))}
    found = _field(where, term.of, declared)
    if found.has_default:
        units = _units(where, found.annotation)
        raise TargetError(
            f"{where}: the field has a default, and only a given value's {units[0]} can be counted; make it required"
        )
    return {"of": found.wire_name, "unit": _unit(where, term, _units(where, found.annotation))}


def _array(where: str, name: str | None, arrays: tuple[ArraySpec, ...]) -> ArraySpec:
    if name is None and len(arrays) == 1:
        found = arrays[0]
    elif name is None:
        raise TargetError(f"{where}: say which of the arrays: {', '.join(spec.name for spec in arrays)}")
    else:
        by_name = {spec.name: spec for spec in arrays}
        if name not in by_name:
            raise TargetError(f"{where}: {unknown('array', name, by_name)}")
        found = by_name[name]
    if found.shape == ():
        raise TargetError(f"{where}: `{found.name}` has no axes")
    return found


def _units(where: str, annotation: Any) -> tuple[str, ...]:
    """Return the units that a type can be counted in, the natural one first."""
    base = strip(annotation)
    kind: Any = getattr(base, "__origin__", base)
    if kind is str:
        return ("characters", "bytes")
    if kind is bytes or getattr(kind, "__name__", "") == "Image":
        return ("bytes",)
    if kind is list:
        return ("axis",)
    raise TargetError(f"{where}: only str, bytes, lists and arrays have a length, not {base}")


def _unit(where: str, term: length, units: tuple[str, ...]) -> str:
    if term.unit is None:
        return units[0]
    if term.unit not in units:
        raise TargetError(f"{where}: it is counted in {' or '.join(units)}, not in {term.unit}")
    return term.unit
