"""What stands behind an annotation: under `Annotated`, under names of types, and for the TypeVars of a base class."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints


def strip(annotation: Any) -> Any:
    """Take the annotation without `Annotated`, and for a NewType or a `type Name = ...` what it stands for."""
    return unwrapped(annotation)[0]


def unwrapped(annotation: Any) -> tuple[Any, list[Any]]:
    """Tell what `strip` takes, and all that `Annotated` says beside it, the outermost first."""
    extras: list[Any] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            extras += more
        elif (named := named_type(annotation)) is not None:
            annotation = named
        else:
            return annotation, extras


def named_type(kind: Any) -> Any:
    """Tell what type a `NewType` or a `type Name = ...` stands for; None if it is neither."""
    name = get_origin(kind) or kind
    if isinstance(name, type):
        return None
    meant = getattr(name, "__supertype__", getattr(name, "__value__", None))
    return filled(meant, dict(zip(getattr(name, "__type_params__", ()), get_args(kind), strict=False)))


def parts(annotation: Any, *names: Any) -> Iterator[Any]:
    """Yield an annotation and all that it is made of; a `type Json = dict[str, Json] | str` is entered once."""
    yield annotation
    inner: Sequence[Any] = get_args(annotation)
    if (named := named_type(annotation)) is not None:
        name = get_origin(annotation) or annotation
        inner = inner if any(name is known for known in names) else (named,)
        names = (*names, name)
    for part in inner:
        yield from parts(part, *names)


def filled(annotation: Any, known: Mapping[Any, Any]) -> Any:
    """Put types for the TypeVars in an annotation, as far as they are known."""
    if isinstance(annotation, TypeVar):
        return known.get(annotation, annotation)
    if not known or not get_args(annotation) or not getattr(annotation, "__parameters__", ()):
        return annotation
    return annotation[tuple(known.get(each, each) for each in annotation.__parameters__)]


def class_arguments(kind: type[Any], owner: type[Any], names: Mapping[str, Any] | None = None) -> dict[Any, Any]:
    """Tell what the TypeVars of a class stand for in one that inherits from it: in Prices(Base[Order]), T is Order.

    One that is left open stands for its bound, or for itself if it has none that says what is in it. `names`: where
    names are looked up that the modules of the classes do not know.
    """
    known = _given(kind, owner, {}, names)
    return {each: known.get(each, _bound(each, owner, names)) for each in _parameters(owner)}


def _bound(parameter: Any, owner: type[Any], names: Mapping[str, Any] | None) -> Any:
    bound = getattr(parameter, "__bound__", None)
    if bound is None:
        return parameter
    bound = _resolved(bound, owner, names)
    place = getattr(bound, "__module__", "").partition(".")[0], getattr(bound, "__name__", "")
    return parameter if place in _BARE else bound


_BARE = (("pydantic", "BaseModel"), ("msgspec", "Struct"))
"""Classes without fields: nothing of an item would be read."""


def _resolved(annotation: Any, owner: type[Any], names: Mapping[str, Any] | None) -> Any:
    """Put types for the names in quotes, as far as they are known where the class is."""
    known = {**vars(sys.modules.get(owner.__module__, sys)), **(names or {})}
    try:
        return get_type_hints(_Holder(annotation), known, include_extras=True)["it"]
    except (NameError, AttributeError, SyntaxError, TypeError):
        return annotation  # as it is; who needs it says what is wrong


class _Holder:
    def __init__(self, annotation: Any) -> None:
        self.__annotations__ = {"it": annotation}


def _given(kind: type[Any], owner: type[Any], known: dict[Any, Any], names: Mapping[str, Any] | None) -> dict[Any, Any]:
    if kind is owner:
        return known
    for base in vars(kind).get("__orig_bases__", kind.__bases__):
        origin = get_origin(base) or base
        if isinstance(origin, type) and issubclass(origin, owner):
            arguments = [filled(_resolved(argument, kind, names), known) for argument in get_args(base)]
            return _given(origin, owner, dict(zip(_parameters(origin), arguments, strict=False)), names)
    return {}


def open_in(annotation: Any, arguments: Mapping[Any, Any]) -> Any:
    """Find a TypeVar in an annotation that a class left open; None if there is none. One of a method's own may be."""
    left = [part for argument in arguments.values() for part in parts(argument) if isinstance(part, TypeVar)]
    return next((part for part in parts(annotation) if isinstance(part, TypeVar) and part in left), None)


def _parameters(kind: Any) -> tuple[Any, ...]:
    return getattr(kind, "__parameters__", ())
