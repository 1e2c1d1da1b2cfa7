"""`jitney.Response`: an answer with a media type and headers of its author's choice."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(;[ -~]*)?", re.ASCII)
_MOST_BYTES: Final = 8192
"""Bytes of all headers together."""

_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
_OWN: Final = frozenset(
    {"content-length", "content-encoding", "date", "retry-after", "server", "server-timing", "vary", "x-request-id"}
)
_OWN_PREFIXES: Final = ("x-jitney-", "access-control-", "proxy-")


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of `predict` with its media type and headers. The status stays jitney's: 200.

    `content` is bytes, text, or what JSON can say. Without `media_type` it is answered as it would be without Response.
    The answer of `POST /{deployment}` has the media type and the headers. In `/batch` each outcome has its own. A
    program gets a Response back, whose content is bytes if it has a media type. The Open Inference Protocol carries
    the content alone.
    """

    content: Any
    media_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if isinstance(self.content, Response):
            raise TypeError("the content of a Response is another Response: give its content")
        if self.media_type is not None and not _MEDIA_TYPE.fullmatch(self.media_type):
            raise ValueError(f"media_type={self.media_type!r} is not a media type: write one such as text/html")
        for name, value in self.headers.items():
            _check(name, value)
        if sum(len(name) + len(value) for name, value in self.headers.items()) > _MOST_BYTES:
            raise ValueError(f"the headers of an answer have more than {_MOST_BYTES} bytes together: send less")

    def head(self, media_type: str | None) -> str | None:
        """Return this media type and the headers as they cross the link; None if there are none."""
        lines = [f"{name.lower()}: {value}" for name, value in self.headers.items()]
        return "\n".join([media_type or "", *lines]) if lines else media_type


def read_head(head: str) -> tuple[str | None, dict[str, str]]:
    """Return the media type and the headers of what `Response.head` returned."""
    media_type, *lines = head.split("\n")
    return media_type or None, dict(cast("tuple[str, str]", tuple(line.split(": ", 1))) for line in lines)


def _check(name: str, value: str) -> None:
    key = name.lower()
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a header: write one such as x-shade")
    if key == "content-type":
        raise ValueError("the header content-type of an answer is its media_type: Response(content, media_type=...)")
    if key in _HOP_BY_HOP:
        raise ValueError(f"the header {name} belongs to the connection, and not to an answer: leave it out")
    if key in _OWN or key.startswith(_OWN_PREFIXES):
        raise ValueError(f"the header {name} is set by jitney or by a proxy: choose another name")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"header {name}: {value!r} is not visible ASCII in one line: encode it")
