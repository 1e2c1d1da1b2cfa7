"""`predict`'s signature, read once: what a deployment takes and what it returns.

Types of numpy, pydantic and others are recognised by name: code that annotates with them has imported them already.
"""

import contextlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, Final, Literal, cast, get_args, get_origin, get_type_hints

import msgspec

from jitney.errors import TargetError
from jitney.failures import one_line
from jitney.signature import schemas, unsupported
from jitney.signature.arrays import ANY_DTYPE, ArraySpec, array_spec, is_array_type, is_column
from jitney.signature.fields import alternatives
from jitney.signature.hints import filled, holds, is_image, is_pillow_class, open_in, show, strip
from jitney.types.arrays import Embeddings
from jitney.types.image import Image, require_pillow
from jitney.types.response import Response
from jitney.types.steps import NOTHING, Declared, End

InputKind = Literal["text", "bytes", "image", "object", "arrays"]
OutputKind = Literal["text", "bytes", "image", "object", "array", "arrays", "any"]

_STREAMS: Final = frozenset({"Generator", "Iterator", "Iterable", "AsyncGenerator", "AsyncIterator", "AsyncIterable"})
_LISTS: Final = frozenset({"list", "Sequence", "MutableSequence"})
_TAKES: Final = (
    "list[str], list[bytes], list[jitney.Image], np.ndarray (n first), or a list of a struct "
    "(msgspec, dataclass, pydantic, TypedDict)"
)
_TAKES_ONE: Final = (
    "str, bytes, jitney.Image, np.ndarray (one item's), or a struct (msgspec, dataclass, pydantic, TypedDict)"
)
_RETURNS: Final = (
    "an array (n first), jitney.Embeddings, a dataclass or NamedTuple of arrays, or list[X] where X is str, bytes, "
    "jitney.Image, an array, or anything that JSON can say"
)


@dataclass(frozen=True)
class Input:
    """What an item is: `item` is its Python type (of arrays: None), `arrays` one per parameter of `predict`.

    `name` is what `predict` calls its parameter, if there is one.
    """

    kind: InputKind
    item: Any = None
    arrays: tuple[ArraySpec, ...] = ()
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str = ""
    stacked: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Of several parameters that are not all arrays: their names, and whether their arrays are stacked."""


@dataclass(frozen=True)
class Output:
    """What an answer is, as far as the annotation says."""

    kind: OutputKind
    item: Any = None
    arrays: tuple[ArraySpec, ...] = ()
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    counts_tokens: bool = False
    """Whether it comes with the number of tokens that it took."""
    method: str = "predict"
    """The served method that returns it, as messages name it."""
    part: "Output | None" = None
    """Of a model that answers in parts: what a part is. The rest describes the whole answer."""


@dataclass(frozen=True)
class Signature:
    """What `predict` takes and returns."""

    input: Input
    output: Output


def read_signature(
    predict: Callable[..., object],
    *,
    batched: bool = True,
    is_method: bool = False,
    names: Mapping[str, object] | None = None,
    arguments: Mapping[Any, Any] | None = None,
) -> Signature:
    """Read the types of `predict`; TargetError says what cannot be served and what can.

    `is_method`: the first parameter is `self`. `names`: where names are looked up that the module does not know,
    such as types defined inside a function. `arguments`: what the TypeVars of its class stand for.
    """
    hints = {name: filled(hint, arguments or {}) for name, hint in _hints(predict, names).items()}
    typed = _typed(predict, hints, is_method=is_method, arguments=arguments)
    returned = hints.get("return", _MISSING)
    _refuse_odd_generators(predict, returned, batched=batched)
    where = _name(predict)
    return Signature(_input(where, typed, batched=batched), _output(where, returned, batched=batched))


def read_step_signature(
    admit: Callable[..., object],
    step: Callable[..., object],
    *,
    is_method: bool = True,
    names: Mapping[str, object] | None = None,
    arguments: Mapping[Any, Any] | None = None,
) -> Signature:
    """Read what a model that works in steps takes, from `admit`, and what it says of an item, from `step`."""
    hints = {name: filled(hint, arguments or {}) for name, hint in _hints(admit, names).items()}
    taken = _typed(admit, hints, is_method=is_method, arguments=arguments)
    returned = filled(_hints(step, names).get("return", _MISSING), arguments or {})
    if list_item(returned) is None:
        got = "nothing that is annotated" if returned is _MISSING else show(returned)
        raise TargetError(
            f"{_name(step)} returns {got}; it returns a list with what is new of each item: list[jitney.Step[str]]"
        )
    return Signature(
        _input(_name(admit), taken, batched=True), _in_parts(_name(step), Iterator[returned], batched=True)
    )


def _typed(
    predict: Callable[..., object],
    hints: Mapping[str, Any],
    *,
    is_method: bool,
    arguments: Mapping[Any, Any] | None,
) -> dict[str, Any]:
    """Return the type of each parameter."""
    typed: dict[str, Any] = {}
    for name in _parameters(predict, hints, is_method=is_method):
        if name not in hints:
            raise TargetError(f"{_name(predict)}: parameter `{name}` has no type; annotate it as {_TAKES}")
        if found := open_in(hints[name], arguments or {}):
            raise TargetError(
                f"{_name(predict)}: parameter `{name}` is {show(hints[name])}, and the type of {found} is not given: "
                "inherit from the class with a type in brackets, or annotate `predict` in the class that is deployed"
            )
        typed[name] = hints[name]
    return typed


_MISSING: Final = object()


def _name(predict: Callable[..., object]) -> str:
    return getattr(predict, "__qualname__", repr(predict)).replace("<locals>.", "")


def _refuse_odd_generators(predict: Callable[..., object], returned: Any, *, batched: bool) -> None:
    name, is_annotated = _name(predict), is_async_stream(strip(returned))
    if inspect.isasyncgenfunction(predict):
        if batched:
            raise TargetError(f"{name} is an `async def` that yields: it takes one item, so say batched=False")
        if not is_annotated:
            example = "-> AsyncIterator[jitney.Step[str]]"
            raise TargetError(f"{name} is an `async def` that yields: annotate what its parts are, as in `{example}`")
    elif is_annotated or (inspect.iscoroutinefunction(predict) and is_stream(strip(returned))):
        raise TargetError(
            f"{name} is annotated with {show(returned)}: write `async def` with `yield`, or `def` and Iterator"
        )
    if inspect.isgeneratorfunction(predict) and not is_stream(strip(returned)):
        expected = "list[jitney.Step[str]]" if batched else "jitney.Step[str]"
        raise TargetError(f"{_name(predict)} yields: annotate what its parts are, as in `-> Iterator[{expected}]`")


def _hints(predict: Callable[..., object], names: Mapping[str, object] | None) -> dict[str, Any]:
    local = dict(names or {})
    with contextlib.suppress(TypeError, ValueError):
        # What the function closes over is not in its globals, yet its annotations may name it.
        local |= inspect.getclosurevars(predict).nonlocals
    try:
        return get_type_hints(predict, localns=local, include_extras=True)
    except NameError as error:
        raise TargetError(
            f"{_name(predict)}: the annotation's name `{error.name}` is not defined; import it at run time "
            "(not only under TYPE_CHECKING), or define it at the top of the module"
        ) from error
    except Exception as error:
        raise TargetError(f"{_name(predict)}: its annotations cannot be read: {one_line(error)}") from error


def _parameters(predict: Callable[..., object], hints: Mapping[str, Any], *, is_method: bool) -> list[str]:
    parameters = list(inspect.signature(predict).parameters.values())[1 if is_method else 0 :]
    taken: list[str] = []
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TargetError(f"{_name(predict)}: `{parameter}` cannot be served; name every parameter")
        if parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.default is parameter.empty:
                raise TargetError(
                    f"{_name(predict)}: `{parameter.name}` is keyword-only; parameters are given by position"
                )
        elif parameter.default is parameter.empty or not taken:
            taken.append(parameter.name)
        else:
            place = "" if is_array_type(hints.get(taken[0])) else "a struct or into "
            raise TargetError(
                f"{_name(predict)}: `{parameter}` is not part of the API, because it has a default; put it into "
                f"{place}__init__, or behind a `*` if only your own calls give it"
            )
    if not taken:
        raise TargetError(f"{_name(predict)} takes nothing; its parameter is {_TAKES}")
    return taken


def _input(where: str, typed: dict[str, Any], *, batched: bool) -> Input:
    specs = {name: _array_parameter(where, name, annotation, batched=batched) for name, annotation in typed.items()}
    arrays = tuple(spec for spec in specs.values() if spec is not None)
    if len(arrays) == len(typed):
        return Input("arrays", arrays=arrays, schema=schemas.of_arrays(arrays))
    if len(typed) > 1:
        return _mixed_input(where, typed, specs, batched=batched)
    [(name, annotation)] = typed.items()
    if not batched:
        item = annotation
        if is_stream(item):
            raise TargetError(f"{where}: parameter `{name}` is {show(item)}: with batched=False it is {_TAKES_ONE}")
    else:
        item = list_item(annotation)
        if item is None:
            hint = _unbatched_hint(annotation)
            raise TargetError(f"{where}: parameter `{name}` is {show(annotation)}; `predict` takes a batch: {hint}")
    return replace(_object_input(f"{where}: parameter `{name}`", item), name=name)


def _array_parameter(where: str, name: str, annotation: Any, *, batched: bool) -> ArraySpec | None:
    """Return what a parameter says of its arrays, stacked or as a list; None if it takes something else."""
    if is_array_type(annotation):
        return array_spec(where, name, annotation)
    item = list_item(annotation) if batched else None
    return replace(array_spec(where, name, item), is_stacked=False) if is_array_type(item) else None


def _mixed_input(where: str, typed: dict[str, Any], specs: Mapping[str, ArraySpec | None], *, batched: bool) -> Input:
    """Describe parameters of several types: an item is an object with a field for each."""
    fields: list[tuple[str, Any]] = []
    stacked: dict[str, bool] = {}
    for name, annotation in typed.items():
        spec = specs[name]
        item = annotation if (spec is not None and spec.is_stacked) or not batched else list_item(annotation)
        if item is None:
            raise TargetError(f"{where}: parameter `{name}` is {show(annotation)}; `predict` takes a batch: {_TAKES}")
        stacked[name] = batched and spec is not None and spec.is_stacked
        if stacked[name] and spec is not None and (spec.shape is None or None in spec.shape):
            raise TargetError(
                f"{where}: parameter `{name}` is {spec.show()}: next to other types say the whole shape "
                "(jitney.Tensor), or take a list of arrays: list[np.ndarray]"
            )
        fields.append((name, item))
    kind = msgspec.defstruct("Item", fields, kw_only=True)
    return replace(_object_input(where, kind), stacked=stacked)


def _unbatched_hint(annotation: Any) -> str:
    if annotation in (str, bytes, Image):
        return f"list[{show(annotation)}] (or say batched=False)"
    return _TAKES


def _object_input(where: str, item: Any) -> Input:
    base = strip(item)
    if base is Image:
        require_pillow(where)
        return Input("image", item=Image, schema=schemas.IMAGE)
    if holds(item, is_image):
        require_pillow(where)
    kind: InputKind = "text" if base is str else "bytes" if base is bytes else "object"
    return Input(kind, item=item, schema=schemas.of_type(where, item))


def _output(where: str, annotation: Any, *, batched: bool) -> Output:
    base = strip(annotation)
    if annotation is _MISSING or base is Any or is_column(where, annotation):
        return Output("any")
    if is_stream(base):
        return _in_parts(where, annotation, batched=batched)
    if base is type(None):
        raise TargetError(f"{where} returns None; it returns {_RETURNS}")
    if base is Embeddings:
        spec = ArraySpec("", ANY_DTYPE, (None,))
        return Output("array", item=base, arrays=(spec,), schema=schemas.of_array(spec), counts_tokens=True)
    if is_array_type(annotation):
        spec = array_spec(where, "", annotation, any_dtype=True)
        return Output("array", arrays=(spec,), schema=schemas.of_array(spec))
    named = _named_arrays(where, base, batched=batched)
    if named:
        return Output("arrays", item=base, arrays=named, schema=schemas.of_arrays(named))
    item = list_item(annotation) if batched else annotation
    if item is None:
        raise TargetError(f"{where} returns {show(annotation)}; it returns {_RETURNS}")
    return _answer(where, without_exceptions(item))


def _in_parts(where: str, annotation: Any, *, batched: bool) -> Output:
    """Describe what a generator yields: a step for each item of its batch, or for its one item."""
    yielded, *_ = *get_args(strip(annotation)), Any
    step = list_item(yielded) if batched else yielded
    if step is None:
        raise TargetError(
            f"{where} yields {show(yielded)}; it yields a list with what is new of each item: list[jitney.Step[str]], "
            "or say batched=False"
        )
    declared = next((part for part in getattr(step, "__metadata__", ()) if isinstance(part, Declared)), None)
    declared = declared or Declared(_part_type(step))
    part = _answer(where, declared.part)
    whole = _answer(where, _whole_type(part, declared))
    return replace(whole, part=part)


def _part_type(step: Any) -> Any:
    """Return the type of a part, of what a model says of one item."""
    kinds = [kind for kind in alternatives(without_exceptions(step)) if kind not in (type(None), End)]
    return typing.Union[tuple(kinds)] if kinds else Any  # noqa: UP007 -- a union of a computed tuple


def _whole_type(part: Output, declared: Declared) -> Any:
    if declared.answer is not NOTHING:
        return declared.answer
    return declared.part if part.kind in ("text", "bytes", "any") else list[declared.part]


def _answer(where: str, item: Any) -> Output:
    base = strip(item)
    if base is Any or is_column(where, item) or Response in get_args(base):
        return Output("any")
    if base is Image:
        require_pillow(f"{where}: what it returns")
    if base is Image or is_pillow_class(base):
        return Output("image", item=base, schema=schemas.IMAGE)
    if base is Response:
        return Output("bytes", item=item, schema=schemas.of_answer(bytes))
    if is_array_type(item):
        spec = array_spec(where, "", item, any_dtype=True)
        return Output("array", arrays=(spec,), schema=schemas.of_array(spec))
    if found := unsupported.field_as_default(item):
        raise TargetError(f"{where}: what it returns cannot be encoded: {found}")
    kind: OutputKind = "text" if base is str else "bytes" if base is bytes else "object"
    return Output(kind, item=item, schema=schemas.of_answer(item))


def _named_arrays(where: str, kind: Any, *, batched: bool) -> tuple[ArraySpec, ...]:
    """One array for each field of a dataclass or NamedTuple of arrays; none if it is something else."""
    if not isinstance(kind, type):
        return ()
    kind = cast("type[Any]", kind)
    if not (is_dataclass(kind) or is_named_tuple(kind)):
        return ()
    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise TargetError(f"{where}: in {show(kind)} the name `{error.name}` is not defined") from error
    arrays = {name: is_array_type(annotation) for name, annotation in hints.items()}
    if not any(arrays.values()) or not (batched or all(arrays.values())):
        return ()
    if not all(arrays.values()):
        other = next(name for name, is_array in arrays.items() if not is_array)
        raise TargetError(
            f"{where}: {show(kind)} holds arrays, but its field `{other}` is {show(hints[other])}; "
            f"return list[{show(kind)}], one for each item"
        )
    return tuple(array_spec(where, name, hint, any_dtype=True) for name, hint in hints.items())


def is_named_tuple(kind: type[Any]) -> bool:
    """Whether this is a class made by NamedTuple."""
    return hasattr(kind, "_fields") and issubclass(kind, tuple)


def list_item(annotation: Any) -> Any:
    """Return the type of a list's items, or None if the annotation is not a list."""
    base = strip(annotation)
    origin = get_origin(base) or base
    if getattr(origin, "__name__", "") not in _LISTS or getattr(origin, "__module__", "").startswith("numpy"):
        return None
    arguments = get_args(base)
    return arguments[0] if arguments else Any


def without_exceptions(annotation: Any) -> Any:
    """Take `str | InvalidInput` as `str`: an exception at an index is an outcome, not an answer."""
    base = strip(annotation)
    if get_origin(base) not in (typing.Union, types.UnionType):
        return annotation
    arguments: tuple[Any, ...] = get_args(base)
    kinds: list[Any] = [k for k in arguments if not (isinstance(k, type) and issubclass(k, BaseException))]
    if len(kinds) == len(arguments):
        return annotation
    return typing.Union[tuple(kinds)] if kinds else Any  # noqa: UP007 -- a union of a computed tuple


def is_stream(annotation: Any) -> bool:
    """Whether the annotation is that of a generator or an iterator."""
    origin = get_origin(annotation) or annotation
    module = getattr(origin, "__module__", "")
    return getattr(origin, "__name__", "") in _STREAMS and module in ("collections.abc", "typing")


def is_async_stream(annotation: Any) -> bool:
    """Whether the annotation is that of an asynchronous generator or iterator."""
    origin = get_origin(annotation) or annotation
    return is_stream(annotation) and origin.__name__.startswith("Async")
