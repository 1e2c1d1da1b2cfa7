"""Constructor arguments of a deployment's class, converted to the types that the constructor declares.

`--set` gives text; the file and a program give values. msgspec converts both.
"""

import enum
import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from jitney.config.layers import SetText
from jitney.config.option import KINDS, convert_text, unknown
from jitney.config.secrets import without_secrets
from jitney.errors import ConfigError


class _UnknownType(Exception):
    """msgspec cannot make this type: the value is passed on unchanged."""


def constructor_arguments(name: str, kind: type, init: Mapping[str, object]) -> dict[str, object]:
    """Return the keyword arguments for `kind`, of the deployment `name`; ConfigError names a wrong one."""
    parameters = _parameters(kind)
    where = f"deployment `{name}`"
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    known = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    for key in init:
        if key not in known and not takes_any:
            raise ConfigError(f"{where}: {unknown('constructor argument', key, known)}")
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in init:
            raise ConfigError(
                f"{where}: the constructor argument `{key}` must be given: {kind.__qualname__} has no default for it; "
                f"write --set {name}.init.{key}=VALUE, or {key} in [deployment.{name}.init] of the file"
            )
    hints = _hints(kind)
    # An argument whose default is None takes None, though its annotation may not say so.
    optional = {key for key, parameter in known.items() if parameter.default is None}
    return {
        key: _argument(f"{name}.init.{key}", _or_none(hints.get(key, Any), key in optional), value)
        for key, value in init.items()
    }


def _parameters(kind: type) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(kind).parameters.values())
    except (TypeError, ValueError):
        return []


def _hints(kind: Any) -> dict[str, Any]:
    try:
        return get_type_hints(kind.__init__)
    except Exception:
        return {}


def _or_none(annotation: Any, is_optional: bool) -> Any:
    if not is_optional or annotation is Any or NoneType in _members(annotation):
        return annotation
    return Union[annotation, None]  # noqa: UP007 -- a forward reference has no `|`


def _argument(path: str, annotation: Any, value: object) -> object:
    is_text = isinstance(value, SetText)
    try:
        return _from_text(annotation, str(value)) if is_text else _convert(annotation, value, strict=True)
    except _UnknownType:
        return next(_as_toml(value), str(value)) if isinstance(value, SetText) else value
    except msgspec.ValidationError as error:
        key = path.rpartition(".")[2]
        is_shown = without_secrets({key: value}) == {key: value}
        _, at, place = str(error).rpartition(" - at ")
        what = f"--set {path}" if is_text else f"constructor argument `{path}`"
        inside = f", at {place.strip('`')}" if at else ""
        got = f", got {value!r}" if is_shown else ""
        raise ConfigError(f"{what}: expected {_describe(annotation)}{inside}{got}") from None


def _from_text(annotation: Any, text: str) -> object:
    """Convert the text of `--set`. A type that text can be takes it unchanged."""
    members = _members(annotation)
    if str in members:
        return text
    if NoneType in members and text.strip().lower() == "none":
        return None
    if annotation in (Any, object):
        raise _UnknownType
    others = members - {NoneType}
    if others == {bytes}:
        return text.encode()
    for value in _readings(text):
        try:
            return _convert(annotation, value, strict=False)
        except msgspec.ValidationError:
            continue
    return convert_text(others.pop() if len(others) == 1 else annotation, text)


def _readings(text: str) -> Iterator[object]:
    """Yield what a text may stand for, the plainest first: itself, a value of TOML, one of JSON, a list with commas."""
    yield text
    yield from _as_toml(text)
    if text.lstrip().startswith(("[", "{")):
        try:
            yield json.loads(text)
        except ValueError:
            return
    else:
        yield [part.strip() for part in text.split(",") if part.strip()]


def _as_toml(text: str) -> Iterator[object]:
    if "\n" not in text:
        import tomllib  # noqa: PLC0415 - takes 0.5 MB, and few arguments are of a type that needs it

        try:
            yield tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return


def _convert(annotation: Any, value: object, *, strict: bool) -> object:
    """Convert a value; msgspec.ValidationError if it does not fit, _UnknownType if msgspec does not know the type."""
    if annotation in (Any, object):
        return value
    try:
        return msgspec.convert(value, annotation, strict=strict, dec_hook=_make_path)
    except msgspec.ValidationError:
        raise
    except Exception:  # a type that msgspec does not know, or a name that is not defined
        raise _UnknownType from None


def _make_path(kind: Any, value: object) -> object:
    if not (isinstance(kind, type) and issubclass(kind, PurePath)):
        raise _UnknownType
    if not isinstance(value, str):
        raise TypeError("expected a path")
    return kind(value)


def _members(annotation: Any) -> set[Any]:
    """Return the members of a union, or the one type that it is."""
    return set(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else {annotation}


def _describe(annotation: Any) -> str:
    """Return what a value must be, in words."""
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(map(_describe, get_args(annotation)))
    if get_origin(annotation) is Literal:
        return f"one of {', '.join(map(repr, get_args(annotation)))}"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return f"one of {', '.join(repr(member.value) for member in annotation)}"
    if annotation is NoneType:
        return "none"
    if annotation in KINDS:
        return KINDS[annotation]
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
