"""Values that msgspec does not know by itself, as values that it does: numpy's, pydantic's, tensors, images.

Subclasses are among them (of `str`, of `datetime`): msgspec writes those of `list`, `tuple` and `dict` only.
"""

import datetime
import sys
from collections import UserString
from collections.abc import Callable, Mapping, MappingView, Sequence, Set
from dataclasses import is_dataclass
from functools import lru_cache
from gc import is_tracked
from pathlib import PurePath
from typing import Any, Final, cast

import msgspec

from jitney.codecs.arrays import host_array, is_array, listed
from jitney.signature.hints import is_pydantic
from jitney.types.image import Image, is_pillow


def _datetime(value: Any) -> datetime.datetime:
    day, time = datetime.date(value.year, value.month, value.day), value.timetz()
    return datetime.datetime.combine(day, time)


_ALIKE: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (bytes, bytes),
    (int, int.__int__),
    (float, float.__float__),
    (datetime.datetime, _datetime),
    (datetime.date, lambda value: datetime.date(value.year, value.month, value.day)),
    (datetime.timedelta, lambda value: datetime.timedelta(value.days, value.seconds, value.microseconds)),
    ((PurePath, UserString), str),
    (Mapping, dict),
    ((Sequence, Set, MappingView), list),
)
"""What a value of one of these types is written as; the first that fits. All are made into exactly what is known."""


def plain_hook(value: Any) -> Any:
    """Make one foreign value encodable; msgspec calls this for whatever it does not know."""
    kind = cast("type[Any]", type(value))
    if is_pydantic(kind):
        from jitney.signature.pydantic.adapter import adapter_of  # noqa: PLC0415 -- it imports pydantic

        return adapter_of(kind).to_plain(value, plain_hook)
    if isinstance(value, Image):
        return value.encode()
    if is_pillow(value):
        return Image(value).encode()
    if is_array(value):
        return _array(value)
    if _is_missing(kind):
        return None
    for alike, make in _ALIKE:
        if isinstance(value, alike):
            return cast("Any", make(value))
    raise NotImplementedError(f"a {kind.__qualname__} cannot be encoded")


def sent_hook(value: Any, *, is_shown: bool = False) -> Any:
    """Make one foreign value encodable that is to be read as an item: pydantic's go by the names they are read by."""
    kind = cast("type[Any]", type(value))
    if is_pydantic(kind):
        from jitney.signature.pydantic.adapter import adapter_of  # noqa: PLC0415 -- it imports pydantic

        return adapter_of(kind).to_sent(value, shown_hook if is_shown else sent_hook, is_shown=is_shown)
    return plain_hook(value)


def shown_hook(value: Any) -> Any:
    """Do so for an example, without what its type leaves out (`exclude=True`)."""
    return sent_hook(value, is_shown=True)


def raw_sent_hook(value: Any) -> Any:
    """Do so for an item that holds arrays, which stay raw: msgpack has bytes."""
    return raw_array(value) if is_array(value) else sent_hook(value)


def raw_hook(value: Any) -> Any:
    """Do so for an answer that is declared to hold arrays."""
    return raw_array(value) if is_array(value) else plain_hook(value)


def raw_array(value: Any) -> Any:
    """Return an array as an object of its dtype, shape and bytes; a scalar as a number, one of texts as lists."""
    value = listed(value)
    if not is_array(value):
        return value
    array = host_array(value)
    if array.ndim == 0:
        return array.item()
    data: Any = array.reshape(-1).view("u1").data if array.size else b""
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": data}


def sent(value: Any, hook: Callable[[Any], Any] = sent_hook) -> Any:
    """Make a value one whose foreign parts all come to the hook."""
    if "pydantic.dataclasses" not in sys.modules or not is_tracked(value) or not _holds_dataclasses(value):
        return value
    return without_dataclasses(value, hook)


def _holds_dataclasses(value: Any) -> bool:
    """Whether there is one in lists and dicts; lists that begin and end with a number are not searched.

    The garbage collector does not track what holds numbers and texts only, which is the quickest to be asked.
    """
    kind = cast("type[Any]", type(value))
    if kind is dict:
        for part in value.values():  # noqa: SIM110 -- any() takes twice as long
            if is_tracked(part) and _holds_dataclasses(part):
                return True
        return False
    if kind not in _HOLDING:
        return _may_hold_dataclasses(kind)
    if kind is list and value and type(value[0]) in _NUMBERS and type(value[-1]) in _NUMBERS:
        return False
    for part in value:  # noqa: SIM110
        if is_tracked(part) and _holds_dataclasses(part):
            return True
    return False


def without_dataclasses(value: Any, hook: Callable[[Any], Any]) -> Any:
    """Give pydantic's dataclasses, alone or in lists and dicts, to a hook: msgspec would write them in its own way."""
    kind = cast("type[Any]", type(value))
    if not _may_hold_dataclasses(kind):
        return value
    if kind not in _HOLDING:
        return hook(value)
    parts = cast("dict[Any, Any]", value).values() if kind is dict else value
    if not any(map(_may_hold_dataclasses, set(map(type, parts)))):
        return value
    if kind is dict:
        return {name: without_dataclasses(part, hook) for name, part in value.items()}
    return [without_dataclasses(part, hook) for part in parts]


_NUMBERS: Final = (float, int)
_HOLDING: Final = (list, tuple, set, frozenset, dict)


@lru_cache(maxsize=1024)
def _may_hold_dataclasses(kind: type[Any]) -> bool:
    return kind in _HOLDING or (is_dataclass(kind) and is_pydantic(kind))


def _is_missing(kind: type[Any]) -> bool:
    """Whether this is the type of pandas' NaT or NA."""
    return kind.__name__ in ("NaTType", "NAType") and kind.__module__.partition(".")[0] == "pandas"


def _array(value: Any) -> Any:
    value = listed(value)
    return host_array(value).tolist() if is_array(value) else value


def plain(value: Any) -> Any:
    """Return a value as JSON has it, bytes as base64, for examples and schemas."""
    return msgspec.json.decode(msgspec.json.encode(sent(value, shown_hook), enc_hook=shown_hook))
