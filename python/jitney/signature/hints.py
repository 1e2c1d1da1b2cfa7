"""Annotations taken apart: `Annotated`, names of types, TypeVars of base classes, fields of classes."""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from jitney.types.image import Image, is_pillow_type
from jitney.types.steps import NOTHING, Declared


def strip(annotation: Any) -> Any:
    """Return an annotation without `Annotated`; of a NewType or a `type Name = ...` the type that it names."""
    return unwrapped(annotation)[0]


def unwrapped(annotation: Any) -> tuple[Any, list[Any]]:
    """Return what `strip` returns, and the metadata of `Annotated`, the outermost first."""
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
    """Return the type that a `NewType` or a `type Name = ...` names; None if the annotation is neither."""
    name = get_origin(kind) or kind
    if isinstance(name, type):
        return None
    meant = getattr(name, "__supertype__", getattr(name, "__value__", None))
    return filled(meant, dict(zip(getattr(name, "__type_params__", ()), get_args(kind), strict=False)))


class Part(NamedTuple):
    """An annotation, or one that it is made of."""

    annotation: Any
    owner: type[Any] | None = None
    """The class that has it as a field, if it is one of a class."""
    field: str = ""

    @property
    def path(self) -> str:
        """The beginning of a message about this part: `Order.price: `, or nothing outside of classes."""
        return f"{self.owner.__qualname__}.{self.field}: " if self.owner is not None else ""


def walk(annotation: Any, *, into_fields: bool) -> Iterator[Part]:
    """Yield an annotation and everything that it is made of, outer parts first; `into_fields` adds fields of classes.

    Arrays are not entered. A name of a type (`type Json = dict[str, Json] | str`) and a class are entered once.
    """
    entered: set[Any] = set()
    waiting = [Part(annotation)]
    while waiting:
        part = waiting.pop()
        yield part
        kind = part.annotation
        name = get_origin(kind) or kind
        inner = get_args(kind)[:1] if name is Annotated else get_args(kind)
        if getattr(name, "__module__", "") == "numpy":
            continue  # the dtype inside an array is not a part of an item
        fields: list[Part] = []
        if (named := named_type(kind)) is not None and name not in entered:
            entered.add(name)
            inner = (named,)
        elif into_fields and isinstance(name, type) and name not in entered:
            entered.add(name)
            owner = cast("type[Any]", name)
            fields = [Part(hint, owner, field) for field, hint in field_types(owner).items()]
        waiting += reversed([*(part._replace(annotation=each) for each in inner), *fields])


def parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and everything that it is made of, without the fields of classes."""
    return (part.annotation for part in walk(annotation, into_fields=False))


def holds(annotation: Any, test: Callable[[Any], bool]) -> bool:
    """Whether an annotation, or a part of it, passes a test: itself, what it is made of, and fields of classes."""
    return any(test(part.annotation) for part in walk(annotation, into_fields=True))


def is_image(annotation: Any) -> bool:
    """Whether this is `jitney.Image`."""
    return strip(annotation) is Image


def classes_in(annotation: Any) -> set[type[Any]]:
    """Return the classes that a value of this annotation may hold, itself and in fields."""
    kinds = (get_origin(part.annotation) or part.annotation for part in walk(annotation, into_fields=True))
    return {cast("type[Any]", kind) for kind in kinds if isinstance(kind, type)}


def field_types(owner: type[Any]) -> dict[str, Any]:
    """Return the annotations of a class by field; none if it has no fields, or if they cannot be read."""
    if owner.__module__ == "builtins":
        return {}
    try:
        hints = get_type_hints(owner, include_extras=True)
    except Exception:  # the class cannot be decoded, or is part of an answer that no schema can describe
        return {}
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}


def show(annotation: Any) -> str:
    """Write a type as the user would."""
    if isinstance(annotation, type) and not get_args(annotation):
        return "jitney.Image" if annotation is Image else annotation.__qualname__
    text = str(annotation)
    for step, declared in _steps_in(annotation):
        types = (declared.part,) if declared.answer is NOTHING else (declared.part, declared.answer)
        text = text.replace(str(step), f"jitney.Step[{', '.join(map(show, types))}]")
    return text.replace("typing.", "")


def _steps_in(annotation: Any) -> Iterator[tuple[Any, Declared]]:
    """Yield each `jitney.Step[...]` in an annotation, and what it was made of."""
    for extra in getattr(annotation, "__metadata__", ()):
        if isinstance(extra, Declared):
            yield annotation, extra
            return
    for inner in get_args(annotation):
        yield from _steps_in(inner)


def filled(annotation: Any, known: Mapping[Any, Any]) -> Any:
    """Replace the TypeVars in an annotation by types, as far as these are known."""
    if isinstance(annotation, TypeVar):
        return known.get(annotation, annotation)
    if not known or not get_args(annotation) or not getattr(annotation, "__parameters__", ()):
        return annotation
    return annotation[tuple(known.get(each, each) for each in annotation.__parameters__)]


def class_arguments(kind: type[Any], owner: type[Any], names: Mapping[str, Any] | None = None) -> dict[Any, Any]:
    """Return the types of `owner`'s TypeVars in `kind`, which inherits from it: in Prices(Base[Order]), T is Order.

    An open TypeVar gets its bound; without a bound that has fields it stays a TypeVar. `names` are looked up where the
    modules of the classes do not know a name.
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
"""Classes without fields: no part of an item would be read."""


def _resolved(annotation: Any, owner: type[Any], names: Mapping[str, Any] | None) -> Any:
    """Replace names in quotes by types, as far as the module of the class knows them."""
    known = {**vars(sys.modules.get(owner.__module__, sys)), **(names or {})}
    try:
        return get_type_hints(_Holder(annotation), known, include_extras=True)["it"]
    except (NameError, AttributeError, SyntaxError, TypeError):
        return annotation  # unchanged; reading the signature reports the unknown name


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
    """Return a TypeVar in an annotation that its class left open; None if there is none."""
    left = [part for argument in arguments.values() for part in parts(argument) if isinstance(part, TypeVar)]
    return next((part for part in parts(annotation) if isinstance(part, TypeVar) and part in left), None)


def _parameters(kind: Any) -> tuple[Any, ...]:
    return getattr(kind, "__parameters__", ())


def is_pydantic(kind: Any) -> bool:
    """Whether pydantic validates this type: a model or a pydantic dataclass."""
    return isinstance(kind, type) and "pydantic" in sys.modules and hasattr(kind, "__pydantic_validator__")


def by_pydantic(annotation: Any) -> bool:
    """Whether pydantic validates values of this annotation: its types, and lists, dicts and unions of them."""
    return any(map(is_pydantic, parts(annotation)))


def is_pillow_class(kind: Any) -> bool:
    """Whether this annotation is Pillow's image class, or inherits from it."""
    return isinstance(kind, type) and is_pillow_type(kind)
