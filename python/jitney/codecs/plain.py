"""Values that msgspec does not know by itself, as values that it does: numpy's, pydantic's, tensors, images."""

from functools import lru_cache
from typing import Any, cast

import msgspec

from jitney import schemas
from jitney.types import Image, is_pillow, is_pillow_type


def plain_hook(value: Any) -> Any:
    """Make one foreign value encodable; msgspec calls this for whatever it does not know."""
    kind = cast("type[Any]", type(value))
    if schemas.is_pydantic(kind):
        from jitney.pydantic_types import adapter_of  # noqa: PLC0415 -- it imports pydantic

        return adapter_of(kind).to_plain(value)
    if isinstance(value, Image):
        return value.encode()
    if is_pillow(value):
        return Image(value).encode()
    if is_array(value):
        return _array(value)
    raise NotImplementedError(f"a {kind.__qualname__} cannot be encoded")


def is_array(value: object) -> bool:
    """Whether this is an array or tensor of any library; numpy's scalars are arrays without axes."""
    return is_array_type(type(value))


@lru_cache(maxsize=1024)
def is_array_type(kind: type[Any]) -> bool:
    """Whether instances of this type are arrays; a question asked for every answer, so it is asked once per type."""
    if issubclass(kind, Image) or is_pillow_type(kind):
        return False
    return hasattr(kind, "__array__") or hasattr(kind, "__dlpack__")


def _array(value: Any) -> Any:
    from jitney.codecs.answers import host_array  # noqa: PLC0415 -- it imports numpy

    return host_array(value).tolist()


def plain(value: Any) -> Any:
    """Return a value as JSON has it, bytes as base64, for examples and schemas."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=plain_hook))
