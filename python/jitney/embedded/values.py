"""What a value is sent as, and what an answer becomes: text, bytes and arrays unchanged, all else as msgpack."""

# ruff: noqa: PLC0415 -- numpy is heavy: imported where it is used

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NoReturn, cast

import msgspec

from jitney.codecs import tags
from jitney.codecs.arrays import from_lists, is_array
from jitney.codecs.completing import completed
from jitney.codecs.decode.media import answer_hook, array_of
from jitney.codecs.decode.settling import settling
from jitney.codecs.plain import raw_sent_hook, sent, sent_hook
from jitney.errors import BY_REASON, InternalError, InvalidInput, Overloaded, RequestError, Unavailable
from jitney.signature.annotations import Output
from jitney.signature.hints import by_pydantic, strip
from jitney.types.host import on_host
from jitney.types.image import Image, is_pillow
from jitney.types.response import Response, read_head

FAILED: Final = 255
NAMED: Final = 254
ENDED: Final = 252
"""Kinds of raw answers that are not a tag; the same numbers as in Rust. ENDED is the end of an answer in parts."""
PYTHON: Final = 253
"""The value itself, which stays in this process: of fake models in tests."""

Write = Callable[[Any], tuple[int, Any]]
"""A value as (tag, data): str, an object with a buffer, or a list of (dtype, shape, buffer)."""
Read = Callable[[tuple[int, Any, str | None]], Any]
"""A raw answer (kind, data, media type) as the value that the caller gets; raises what it failed with."""

_UNNAMED: Final = (None, "", "application/octet-stream")
"""Media types of answers that are `bytes`; others are a Response."""
BUFFERS: Final = (bytes, bytearray, memoryview)
"""What is sent unchanged."""


def writer(declared: Mapping[str, Any]) -> Write:
    """Find how items of this input (of a manifest) are sent; what they cannot be is InvalidInput."""
    kind: str = declared["kind"]
    if kind == "arrays":
        return _array_writer([spec["name"] for spec in declared["arrays"]], [s["dtype"] for s in declared["arrays"]])
    if kind == "object" and holds_arrays(declared.get("schema")):
        return _object_writer(msgspec.msgpack.Encoder(enc_hook=raw_sent_hook))
    return {"text": _text, "bytes": _bytes, "image": _image, "python": _itself}.get(kind, _object)


def holds_arrays(schema: Any) -> bool:
    """Whether the schema of a struct has fields that are arrays."""
    return b'"x-array"' in msgspec.json.encode(schema)


def _itself(value: Any) -> tuple[int, Any]:
    return PYTHON, value


def _text(value: Any) -> tuple[int, Any]:
    if isinstance(value, str):
        if not value.isascii():  # JSON's "\ud800" becomes a str that is not valid text
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise InvalidInput(f"expected text: {error}") from None
        return tags.TEXT, value
    raise InvalidInput(f"expected str, got {type(value).__qualname__}")


def _bytes(value: Any) -> tuple[int, Any]:
    if isinstance(value, BUFFERS):
        return tags.BYTES, cast("object", value)
    raise InvalidInput(f"expected bytes, got {type(value).__qualname__}")


def _image(value: Any) -> tuple[int, Any]:
    if isinstance(value, BUFFERS):
        return tags.BYTES, cast("object", value)
    if isinstance(value, Image) or is_pillow(value) or is_array(value):
        try:
            return tags.BYTES, (value if isinstance(value, Image) else Image(value)).encode()
        except Exception as error:
            raise InvalidInput(f"this {type(value).__qualname__} cannot be sent as an image: {error}") from error
    raise InvalidInput(f"expected a jitney.Image, a Pillow image, an array or bytes, got {type(value).__qualname__}")


def _object_writer(encoder: msgspec.msgpack.Encoder) -> Write:
    def write(value: Any) -> tuple[int, Any]:
        try:
            return tags.MSGPACK, encoder.encode(sent(value))
        except Exception as error:
            raise InvalidInput(f"a {type(value).__qualname__} cannot be sent: {error}") from error

    return write


_object: Final = _object_writer(msgspec.msgpack.Encoder(enc_hook=sent_hook))


def _array_writer(names: Sequence[str], dtypes: Sequence[str]) -> Write:
    def write(value: Any) -> tuple[int, Any]:
        if len(names) == 1:
            arrays = [value]
        elif isinstance(value, Mapping):
            arrays = _by_name(cast("Mapping[str, Any]", value), names)
        elif isinstance(value, tuple) and len(cast("tuple[Any, ...]", value)) == len(names):
            arrays = list(cast("tuple[Any, ...]", value))
        else:
            raise InvalidInput(f"expected a tuple or a dict of {len(names)} arrays: {', '.join(names)}")
        return tags.TENSOR, [_array(one, dtype) for one, dtype in zip(arrays, dtypes, strict=True)]

    return write


def _by_name(value: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    if set(value) != set(names):
        raise InvalidInput(f"expected the arrays {', '.join(names)}, got {', '.join(map(str, value))}")
    return [value[name] for name in names]


def _array(value: Any, dtype: str) -> tuple[str, tuple[int, ...], Any]:
    import numpy as np

    if is_array(value):
        from jitney.codecs.arrays import dtype_fault

        array = np.ascontiguousarray(on_host(value))
        fault = dtype_fault(array.dtype)
        if fault is not None:
            raise InvalidInput(f"expected an array of {dtype}, got {fault}")
    else:
        try:
            array = np.ascontiguousarray(from_lists(value, dtype))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(f"expected an array of {dtype}: {error}") from None
    shape = np.shape(value) if array.ndim == 1 else array.shape  # an array without axes is given one
    return array.dtype.name, tuple(int(axis) for axis in shape), array


def reader(declared: Mapping[str, Any], output: Output | None) -> Read:
    """Find how answers are read: as the manifest's output says, and as the class says if the program has it."""
    if declared["kind"] == "python":
        return lambda raw: raw[1]
    image = declared["kind"] == "image"
    is_known = output is not None and (output.item is not None or output.kind == "any")
    typed = _with_arrays if not is_known and holds_arrays(declared.get("schema")) else _typed(output)
    named = _named(output)
    as_text = output is None or strip(output.item) in (str, None, Any)

    def read(raw: tuple[int, Any, str | None]) -> Any:  # noqa: PLR0911 -- one for each kind
        kind, data, media = raw
        if media is not None and "\n" in media:
            return _with_headers(raw, read)
        if kind == tags.TEXT:
            return data if as_text else typed(data)
        if kind == tags.MSGPACK:
            return typed(_DECODE(data))
        if kind == tags.TENSOR:
            return _view(data)
        if kind == tags.BYTES:
            return _of_bytes(data, media, is_image=image)
        if kind == NAMED:
            return named({name: _view(one[1]) if one[0] == tags.TENSOR else read(one) for name, one in data})
        if kind == tags.JSON:
            return typed(msgspec.json.decode(data))
        fail(data)

    return read


_DECODE: Final = msgspec.msgpack.Decoder().decode


def _of_bytes(data: bytes, media: str | None, *, is_image: bool) -> Any:
    if is_image or (media or "").startswith("image/"):
        return Image(data, media)
    return data if media in _UNNAMED else Response(data, media)


def _with_headers(raw: tuple[int, Any, str | None], read: Read) -> Response:
    kind, data, head = raw
    media, headers = read_head(head or "")
    content = data if kind == tags.BYTES else read((kind, data, media))
    return Response(content, None if media in _UNNAMED else media, headers)


def _typed(output: Output | None) -> Callable[[Any], Any]:
    if output is None or output.kind != "object" or strip(output.item) in (None, Any):
        return lambda value: value
    item = output.item
    if by_pydantic(item):
        from jitney.signature.pydantic.adapter import Adapter

        return Adapter(item).read_answer
    read = completed(lambda value: msgspec.convert(value, item, dec_hook=answer_hook), item)
    return settling(read, item, any_dtype=True)


def _with_arrays(value: Any) -> Any:
    """Return an answer whose class is unknown here, with its arrays as arrays."""
    if isinstance(value, list):
        return [_with_arrays(part) for part in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    parts = cast("dict[Any, Any]", value)
    if parts.keys() == _ARRAY and isinstance(parts["data"], bytes):
        return array_of(parts)
    return {name: _with_arrays(part) for name, part in parts.items()}


_ARRAY: Final = {"dtype", "shape", "data"}


def _named(output: Output | None) -> Callable[[dict[str, Any]], Any]:
    kind = None if output is None else strip(output.item)
    if kind is None or output is None or output.kind != "arrays":
        return lambda arrays: arrays
    return lambda arrays: kind(**arrays)


def _view(tensor: Any) -> Any:
    """Return a read-only view of the answer's own memory; of an array without axes, its number."""
    frombuffer = _frombuffer()
    return frombuffer(tensor, tensor.dtype).reshape(tensor.shape)[()]


@cache
def _frombuffer() -> Any:
    from numpy import frombuffer

    return frombuffer


def fail(failed: tuple[str, str, str | None, int | None, float | None, str]) -> NoReturn:
    """Raise what (reason, detail, field, status, retry after, id of the request) means."""
    raise exception(failed)


def exception(failed: tuple[str, str, str | None, int | None, float | None, str]) -> RequestError:
    """Return the exception of a failed item."""
    reason, detail, field, status, retry_after_s, request_id = failed
    error = _exception(reason, detail, field, status, retry_after_s)
    error.request_id = request_id
    return error


def _exception(
    reason: str, detail: str, field: str | None, status: int | None, retry_after_s: float | None
) -> RequestError:
    kind = BY_REASON.get(reason, InternalError)
    if issubclass(kind, InvalidInput):
        return kind(detail, field=field) if status is None else kind(detail, field=field, status=status)
    if issubclass(kind, (Overloaded, Unavailable)):
        return kind(detail, retry_after_s=retry_after_s)
    return kind(detail)
