"""Answers of models as JSON of an application."""

import base64
from typing import Any, cast

import msgspec
from starlette.responses import Response

from jitney.types.image import Image
from jitney.types.response import Response as Answer


def response(answer: object) -> Response:
    """Return what a model answered as the answer of a handler: the status is 200.

    A `jitney.Response` keeps its media type and headers, and an image or bytes are sent unchanged. All else is JSON.
    """
    media_type, headers = None, None
    if isinstance(answer, Answer):
        answer, media_type, headers = answer.content, answer.media_type, dict(answer.headers)
    if isinstance(answer, Image):
        media_type = media_type or answer.media_type
        answer = answer.encode()
    if isinstance(answer, (bytes, bytearray, memoryview)):
        return Response(bytes(cast("bytes", answer)), 200, headers, media_type or "application/octet-stream")
    if isinstance(answer, str) and media_type is not None:
        return Response(answer, 200, headers, media_type)
    return JSONResponse(answer, 200, headers, media_type)


class JSONResponse(Response):
    """JSON of what models answer, for a handler to return: structs, arrays, dataclasses, lists and dicts of them.

    FastAPI itself can write none of msgspec's structs and numpy's arrays. As in answers of `jitney serve`, an array is
    nested lists, NaN and infinities are null, and bytes and images are base64.
    """

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode it."""
        if isinstance(content, Answer):
            raise TypeError("a jitney.Response has its own media type: return jitney.fastapi.response(answer)")
        return msgspec.json.encode(_named(content), enc_hook=_plain)


def _named(value: Any) -> Any:
    """Write NamedTuples by their names, in lists too: msgspec would write them as lists."""
    if type(value) is list:
        return [_named(each) for each in cast("list[Any]", value)]
    kind = cast("type[Any]", type(value))
    names = getattr(kind, "_fields", None)
    return dict(zip(names, value, strict=True)) if names and issubclass(kind, tuple) else value


def _plain(value: Any) -> object:
    """Return what msgspec can write in place of a value that it cannot."""
    if hasattr(value, "__array__"):  # numpy's own, and tensors of other libraries on the host
        import numpy as np  # noqa: PLC0415 - only for models that answer arrays

        return np.asarray(value).tolist()
    if isinstance(value, Image):
        return base64.b64encode(value.encode()).decode()
    if hasattr(value, "model_dump"):  # pydantic's
        return value.model_dump(mode="json", by_alias=True)
    raise NotImplementedError(
        f"a {type(value).__name__} cannot be written as JSON; return a struct, an array or a dict"
    )
