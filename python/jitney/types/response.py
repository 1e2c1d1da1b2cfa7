"""`jitney.Response`: an answer as bytes with their media type."""

import re
from dataclasses import dataclass
from typing import Final

_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(;[ -~]*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Response:
    """An answer in a format of the model's own, such as `Response(wav, "audio/wav")`.

    HTTP clients get the content unchanged, under this media type. A client that asks for JSON gets base64.
    """

    content: bytes
    media_type: str

    def __post_init__(self) -> None:
        kind: type[object] = type(self.content)
        if kind is not bytes:
            raise TypeError(f"the content of a Response is bytes, not {kind.__qualname__}; encode a text")
        if _MEDIA_TYPE.fullmatch(self.media_type) is None:
            raise ValueError(f"a media type is like audio/wav, not {self.media_type!r}")
