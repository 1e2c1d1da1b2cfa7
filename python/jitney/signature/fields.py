"""The top-level fields of a struct for group keys and costs: wire name, type, default, reason if it cannot be used."""

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args, get_origin, get_type_hints

import msgspec

from jitney.errors import TargetError
from jitney.signature.hints import is_pydantic, parts, show, strip

_SCALARS: Final[dict[Any, str]] = {int: "int", float: "float", str: "str", bool: "bool", type(None): "none"}
_CHANGES_STRINGS: Final = ("str_strip_whitespace", "str_to_lower", "str_to_upper")
_CONSTRAINTS: Final = frozenset(
    {"Strict", "AllowInfNan", "StringConstraints", "_PydanticGeneralMetadata", "PlainSerializer", "WrapSerializer"}
)
_HARMLESS: Final = frozenset(
    {"pattern", "strict", "allow_inf_nan", "multiple_of", "max_length", "min_length", "ascii_only"}
)


@dataclass(frozen=True)
class Field:
    """One top-level field. `refusal` completes the sentence that begins with its name."""

    name: str
    wire_name: str
    annotation: Any
    has_default: bool
    default: Any
    refusal: str | None = None


def struct_fields(where: str, item: Any) -> list[Field]:
    """Return the top-level fields of an item's type; TargetError if the type is not one struct."""
    kind: Any = strip(item)
    if is_pydantic(kind):
        return _pydantic_fields(kind)
    if inspect.isclass(kind) and (
        issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind) or typing.is_typeddict(kind)
    ):
        return _msgspec_fields(where, kind)
    raise TargetError(f"{where}: {show(item)} has no declared fields; use one struct (msgspec, dataclass, pydantic)")


def scalar_types(where: str, annotation: Any) -> tuple[list[str], list[Any]]:
    """Return the types that a field allows, and its values if it is a Literal; TargetError for other types."""
    names: list[str] = []
    literals: list[Any] = []
    for part in alternatives(annotation):
        if get_origin(part) is Literal:
            literals += get_args(part)
            names += [_scalar(where, type(value)) for value in get_args(part)]
        else:
            names.append(_scalar(where, part))
    names = list(dict.fromkeys(names))
    if literals:
        if any(part not in (None, type(None)) and get_origin(part) is not Literal for part in alternatives(annotation)):
            raise TargetError(f"{where} mixes a Literal with other types; only `| None` can be next to it")
        if "none" in names and None not in literals:
            literals.append(None)
    return names, literals


def alternatives(annotation: Any) -> list[Any]:
    """Return the members of a union, or the one type that it is."""
    annotation = strip(annotation)
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return [inner for part in get_args(annotation) for inner in alternatives(part)]
    return [annotation]


def _scalar(where: str, kind: Any) -> str:
    name = _SCALARS.get(kind) if isinstance(kind, type) else None
    if name is None and isinstance(kind, type) and issubclass(kind, enum.Enum):
        values = ", ".join(repr(member.value) for member in kind)
        raise TargetError(f"{where} is the enum {show(kind)}, which only Python knows; write Literal[{values}]")
    if name is None:
        raise TargetError(f"{where} is {show(kind)}; it can be int, float, str, bool, a Literal of them, or None")
    return name


def _msgspec_fields(where: str, kind: type[Any]) -> list[Field]:
    """Return the fields of a Struct, a dataclass or a TypedDict."""
    described = cast("Any", msgspec.inspect.type_info(kind))
    if getattr(described, "array_like", False):
        raise TargetError(f"{where}: {kind.__name__} is array_like: on the wire its fields have no names")
    hook = _post_init_refusal(kind)
    hints = get_type_hints(kind, include_extras=True)
    fields: list[Field] = []
    for field in described.fields:
        refusal = hook
        if field.default_factory is not msgspec.NODEFAULT:
            refusal = hook or "has a default_factory; only a constant default can be known"
        elif not field.required and field.default is msgspec.NODEFAULT:
            refusal = "may be missing, and a TypedDict has no defaults; use a struct"
        has_default = field.default is not msgspec.NODEFAULT
        default = field.default if has_default else None
        annotation = _without_required(hints[field.name])
        fields.append(Field(field.name, field.encode_name, annotation, has_default, default, refusal))
    return fields


def _changed_by(what: str) -> str:
    return (
        f"may be changed by {what}, which only Python can run; "
        "check such things in predict (jitney.InvalidInput), or in a validator of another field alone"
    )


def _post_init_refusal(kind: type) -> str | None:
    if hasattr(kind, "__post_init__"):
        return _changed_by(f"{kind.__name__}.__post_init__")
    return None


def _without_required(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) in (typing.Required, typing.NotRequired) else hint


def _pydantic_fields(kind: Any) -> list[Field]:
    config = cast("Mapping[str, Any]", getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", {}))
    declared = cast("dict[str, Any]", getattr(kind, "model_fields", None) or getattr(kind, "__pydantic_fields__", {}))
    hook = _pydantic_hook(kind)
    fields: list[Field] = []
    for name, info in declared.items():
        wire, alias_refusal = _pydantic_name(name, info, config)
        refusal = hook or alias_refusal or _pydantic_refusal(kind, name, info, config)
        has_default = not info.is_required() and info.default_factory is None
        fields.append(Field(name, wire, info.annotation, has_default, info.default if has_default else None, refusal))
    return fields


def _pydantic_hook(kind: Any) -> str | None:
    """Return what may change any field of this model after it was read; None if nothing does."""
    decorators = kind.__pydantic_decorators__
    validators = [*decorators.model_validators, *decorators.root_validators]
    if validators:
        return _changed_by(f"the validator {kind.__name__}.{validators[0]}")
    after: Callable[..., object] | None = getattr(kind, "model_post_init", None)
    # Private attributes make pydantic put its own hook there, which sets nothing but them.
    if after is not None and not after.__module__.startswith("pydantic"):
        return _changed_by(f"{kind.__name__}.model_post_init")
    if getattr(kind, "__pydantic_custom_init__", False):
        return _changed_by(f"{kind.__name__}.__init__")
    return _post_init_refusal(kind)


def _pydantic_name(name: str, info: Any, config: Mapping[str, Any]) -> tuple[str, str | None]:
    alias = info.validation_alias if info.validation_alias is not None else info.alias
    if alias is None:
        return name, None
    if not isinstance(alias, str):
        return name, "has several names on the wire (AliasChoices, AliasPath)"
    if config.get("validate_by_alias") is False:
        return name, None
    if config.get("populate_by_name") or config.get("validate_by_name"):
        return alias, f"has two names on the wire, `{alias}` and `{name}` (populate_by_name)"
    return alias, None


def _pydantic_refusal(kind: Any, name: str, info: Any, config: Mapping[str, Any]) -> str | None:
    decorators = kind.__pydantic_decorators__
    for validator, found in {**decorators.field_validators, **decorators.validators}.items():
        if name in found.info.fields or "*" in found.info.fields:
            return _changed_by(f"the validator {kind.__name__}.{validator}")
    if info.default_factory is not None:
        return "has a default_factory; only a constant default can be known"
    changing = [key for key in _CHANGES_STRINGS if config.get(key)]
    if changing and str in alternatives(info.annotation):
        return f"is changed by the model's {changing[0]}"
    for extra in [*info.metadata, *_nested_metadata(info.annotation)]:
        if not _is_harmless(extra):
            return _changed_by(f"{type(extra).__name__}")
    return None


def _nested_metadata(annotation: Any) -> list[Any]:
    """Return the metadata of `Annotated` inside a union or a named type: Annotated[int, AfterValidator(f)] | None."""
    annotated = [part for part in parts(annotation) if get_origin(part) is typing.Annotated]
    return [extra for part in annotated for extra in get_args(part)[1:]]


def _is_harmless(extra: Any) -> bool:
    """Whether a constraint can only reject a value; an unknown constraint may change it."""
    kind = cast("type[Any]", type(extra))
    if kind.__module__ == "annotated_types":
        return True
    if not kind.__module__.startswith("pydantic"):
        return False
    if kind.__name__ == "FieldInfo":
        return all(_is_harmless(inner) for inner in extra.metadata)
    settings: dict[str, Any] = getattr(extra, "__dict__", {})
    in_use = {key for key, value in settings.items() if value is not None}
    return kind.__name__ in _CONSTRAINTS and in_use <= _HARMLESS
