"""What a deployment's class is constructed with: arguments of the layers, as the types that its constructor declares.

`--set` gives text, the file and a program give values; both end as what the annotation says, or as an error.
"""

import enum
import inspect
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from jitney.config import SetText, without_secrets
from jitney.errors import ConfigError
from jitney.options import text_as, unknown

_AS_OPTIONS: Final = (bool, int, float)
"""Types that options have too: their text is read alike, so that `yes` is true."""


class _NotChecked(Exception):
    """The annotation is of a type that only its author knows how to make: the value is handed over as it is."""


def constructor_arguments(name: str, kind: type, init: Mapping[str, object]) -> dict[str, object]:
    """Return the keyword arguments for `kind`, of the deployment `name`; ConfigError names what does not fit."""
    parameters = _parameters(kind)
    where = f"[deployment.{name}.init]"
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    known = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    for key in init:
        if key not in known and not takes_any:
            raise ConfigError(f"{where}: {unknown('constructor argument', key, known)}")
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in init:
            raise ConfigError(f"{where}: `{key}` must be given: {kind.__qualname__} has no default for it")
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
    if not is_optional or annotation is Any or NoneType in _kinds(annotation):
        return annotation
    return Union[annotation, None]  # noqa: UP007 -- a forward reference has no `|`


def _argument(path: str, annotation: Any, value: object) -> object:
    try:
        return parse_init(annotation, value) if isinstance(value, SetText) else fit_init(annotation, value)
    except ValueError as error:
        key = path.rpartition(".")[2]
        is_shown = without_secrets({key: value}) == {key: value}
        where = f"--set {path}" if isinstance(value, SetText) else f"constructor argument `{path}`"
        expected, got = error.args
        raise ConfigError(f"{where}: {expected}{f', got {got}' if is_shown else ''}") from None


def parse_init(annotation: Any, text: str) -> object:
    """Return the value that `--set` means for a constructor argument of this type; ValueError if it cannot be one.

    A type that text can be takes the text as it is, and so does one that is not known when the text is no TOML.
    """
    text, kinds = str(text), _kinds(annotation)
    if str in kinds:
        return text
    if kinds - {NoneType} == {bytes}:
        return text.encode()
    if NoneType in kinds and text.strip().lower() == "none":
        return None
    for kind in _AS_OPTIONS:
        if kinds - {NoneType} == {kind}:
            return _as_number(kind, text)
    if annotation not in (Any, object):
        try:
            return _first_that_fits(annotation, text)
        except _NotChecked:
            pass
    return next(_as_toml(text), text)


def fit_init(annotation: Any, value: object) -> object:
    """Return a value that has a type already as the one that the annotation says; ValueError if it is another."""
    if annotation in (Any, object):
        return value
    try:
        return _converted(annotation, value, strict=True)
    except _NotChecked:
        return value
    except msgspec.ValidationError as error:
        _, at, place = str(error).rpartition(" - at ")
        inside = f", at {place.strip('`')}" if at else ""
        raise ValueError(f"expected {_shown(annotation)}{inside}", repr(value)) from None


def _kinds(annotation: Any) -> set[Any]:
    """Return the members of a union, or the one type that it is."""
    return set(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else {annotation}


def _as_number(kind: type, text: str) -> object:
    try:
        return text_as(kind, text)
    except ValueError as error:
        expected, _, got = str(error).partition(", got ")
        raise ValueError(expected, got or repr(text)) from None


def _first_that_fits(annotation: Any, text: str) -> object:
    for value in _readings(text):
        with suppress(msgspec.ValidationError):
            return _converted(annotation, value, strict=False)
    raise ValueError(f"expected {_shown(annotation)}", repr(text))


def _readings(text: str) -> Iterator[object]:
    """Say what text may mean, the plainest first: itself, a value of TOML, one of JSON, a list with commas."""
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
        try:
            yield tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return


def _converted(annotation: Any, value: object, *, strict: bool) -> object:
    try:
        return msgspec.convert(value, annotation, strict=strict, dec_hook=_made)
    except msgspec.ValidationError:
        raise
    except Exception:  # a type that msgspec does not know, or names that stand for nothing
        raise _NotChecked from None


def _made(kind: Any, value: object) -> object:
    if isinstance(kind, type) and issubclass(kind, PurePath):
        if isinstance(value, str):
            return cast("Callable[[str], object]", kind)(value)
        raise TypeError("expected a path")
    raise _NotChecked


def _shown(annotation: Any) -> str:
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(map(_shown, get_args(annotation)))
    if get_origin(annotation) is Literal:
        return f"one of {', '.join(map(repr, get_args(annotation)))}"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return f"one of {', '.join(repr(member.value) for member in annotation)}"
    if annotation is NoneType:
        return "none"
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
