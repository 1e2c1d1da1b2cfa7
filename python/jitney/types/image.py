"""`jitney.Image`, and what it asks of Pillow. Imports neither numpy nor Pillow by itself."""

# ruff: noqa: PLC0415 -- numpy and Pillow are heavy: imported where they are used

import importlib.util
import io
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Never

from jitney.errors import InvalidInput, InvalidOutput, TargetError
from jitney.types.host import on_host

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image as PillowImage

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_FEW_CHUNKS: Final = 4096
FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
"""The image files that are read. Pillow knows some 40 more, and one of them (EPS) starts Ghostscript."""

_DEEP: Final = ("I", "F")
"""Modes of Pillow, and how those begin, that hold more than 8 bits."""

_SIGNATURES: Final = (
    (_PNG, "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
)


class Image:
    """One image: an input is read lazily, an answer is encoded when it is sent.

    An input is PNG, JPEG, WEBP, GIF, BMP or TIFF; of several frames the first is read.

    `data` is an encoded file (bytes; sent unchanged), a Pillow image, or a uint8 array of shape (height, width),
    (height, width, 3) or (height, width, 4). `format` is what pixels are encoded as on their way out.

    `width` and `height` are pixels, read from the header of a file. `to_pil()` and `to_numpy()` decode it, `media_type`
    says what it is ("image/png"), and `encode()` returns the file that is sent.
    """

    __slots__ = ("_array", "_data", "_media_type", "_pillow", "format", "max_pixels")

    def __init__(
        self,
        data: "bytes | bytearray | memoryview | PillowImage.Image | NDArray[Any]",
        media_type: str | None = None,
        *,
        format: str = "PNG",
        max_pixels: int | None = None,
    ) -> None:
        self._data: bytes | None = None
        self._pillow: Any = None
        self._array: Any = None
        if isinstance(data, (bytes, bytearray, memoryview)):
            self._data = bytes(data)
        elif is_pillow(data):
            self._pillow = data
        elif hasattr(type(data), "__array__"):
            self._array = data
        else:
            hint = ""
            if isinstance(data, (str, os.PathLike)):
                hint = f"; read the file: jitney.Image(Path({os.fspath(data)!r}).read_bytes())"
            raise TypeError(f"an Image is made of bytes, a Pillow image or an array, not {type(data).__name__}{hint}")
        self._media_type = media_type
        self.format = format
        self.max_pixels = max_pixels

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> dict[str, Any]:
        """Let pydantic define models with this class as a field; a deployment that takes such a model is refused."""
        del source, handler
        return {"type": "is-instance", "cls": cls}

    @property
    def media_type(self) -> str:
        """What the image is, or would be when sent, for instance "image/png"."""
        if self._media_type is None:
            self._media_type = f"image/{self.format.lower()}" if self._data is None else _sniff(self._data)
        return self._media_type

    @property
    def width(self) -> int:
        """In pixels; of an encoded image only the header is read."""
        return int(self._array.shape[1]) if self._array is not None else self._header().width

    @property
    def height(self) -> int:
        """In pixels; of an encoded image only the header is read."""
        return int(self._array.shape[0]) if self._array is not None else self._header().height

    def to_pil(self, mode: str | None = None) -> "PillowImage.Image":
        """Decode to a Pillow image, converted to `mode` if given; raises InvalidInput if the data is corrupted.

        Grey of 16 bits is scaled where `mode` has 8: what Pillow does by itself cuts it off at 255.
        """
        image = self._header()
        try:
            image.load()
        except Exception as error:
            raise InvalidInput(f"the image is corrupted: {error}") from error
        if self._data is not None:
            image = self._pillow = _without_decoder(image)
        if mode is None or image.mode == mode:
            return image
        if image.mode.startswith("I;16") and not mode.startswith(_DEEP):
            image = _in_8_bits(image)
        return image.convert(mode)

    def to_numpy(self, mode: str = "RGB") -> "NDArray[np.uint8]":
        """Decode to uint8 pixels: (height, width, 3) for "RGB", (height, width) for "L". 16 bits are scaled to 8."""
        import numpy as np

        return np.asarray(self.to_pil(mode), dtype=np.uint8)

    @property
    def __array_interface__(self) -> Never:
        """Raise: numpy, which asks for this, would make an array of one object of it."""
        raise TypeError("numpy cannot read a jitney.Image: write image.to_numpy() in place of np.asarray(image)")

    def check(self) -> None:
        """Raise InvalidInput unless the header is an image's and within `max_pixels`; pixels are not decoded."""
        self._header()

    def encode(self) -> bytes:
        """Return the file that is sent; raises InvalidOutput if these pixels cannot be encoded."""
        if self._data is not None:
            return self._data
        buffer = io.BytesIO()
        try:
            (self._from_array() if self._pillow is None else self._pillow).save(buffer, format=self.format)
        except InvalidOutput:
            raise
        except Exception as error:
            raise InvalidOutput(f"an image cannot be encoded as {self.format}: {error}") from error
        return buffer.getvalue()

    def own(self) -> "Image":
        """Return an image that shares no pixels with what it was made of."""
        if self._data is not None:
            return self
        if self._array is None:
            return Image(self._pillow.copy(), self._media_type, format=self.format)
        copy = getattr(self._array, "clone", None) or self._array.copy  # torch has `clone`, all others `copy`
        return Image(copy(), self._media_type, format=self.format)

    def __repr__(self) -> str:
        held = f"{len(self._data)} bytes" if self._data is not None else "pixels"
        return f"Image({held}, {self.media_type!r})"

    def _header(self) -> "PillowImage.Image":
        if self._pillow is None:
            self._pillow = self._from_array() if self._data is None else self._open(self._data)
        return self._pillow

    def _open(self, data: bytes) -> "PillowImage.Image":
        opener = pillow()
        if data.startswith(_PNG) and _has_tiny_chunks(data):
            raise InvalidInput("the image is a PNG of a great many tiny chunks; save it again", status=413)
        if self.max_pixels is not None and opener.MAX_IMAGE_PIXELS is not None:
            # Pillow's own bound, one for the whole process: it warns of more, and refuses more than twice as many.
            opener.MAX_IMAGE_PIXELS = max(opener.MAX_IMAGE_PIXELS, self.max_pixels)
        bombs: tuple[type[Exception], ...] = (opener.DecompressionBombError, opener.DecompressionBombWarning)
        try:
            image = opener.open(io.BytesIO(data), formats=FORMATS)
        except opener.UnidentifiedImageError:
            looks = "; they look like JSON: send content-type: application/json" if data[:1] in (b'"', b"{") else ""
            raise InvalidInput(
                f"these {len(data)} bytes are not an image that can be read here: {', '.join(FORMATS)}{looks}"
            ) from None
        except bombs as error:
            raise InvalidInput(f"the image has too many pixels: {error}", status=413) from None
        except Exception as error:
            raise InvalidInput(f"the image is corrupted: {error}") from error
        pixels = image.width * image.height
        if self.max_pixels is not None and pixels > self.max_pixels:
            raise InvalidInput(
                f"the image has {image.width} x {image.height} = {pixels} pixels, allowed are {self.max_pixels} "
                "(option `max_pixels`)",
                status=413,
            )
        if image.format is not None:
            self._media_type = opener.MIME.get(image.format, self._media_type)
        return image

    def _from_array(self) -> "PillowImage.Image":
        import numpy as np

        pixels = on_host(self._array)
        if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))):
            raise InvalidOutput(
                "an image's array is uint8 of shape (height, width), (height, width, 3) or (height, width, 4), "
                f"not {pixels.dtype} of shape {pixels.shape}"
            )
        return pillow().fromarray(np.ascontiguousarray(pixels))


def _has_tiny_chunks(png: bytes) -> bool:
    """Whether a PNG has more chunks than an encoder makes: each takes time to read, however few pixels there are."""
    at, left = len(_PNG), _FEW_CHUNKS + len(png) // 1024
    while at + 8 <= len(png) and left > 0:
        at += 12 + int.from_bytes(png[at : at + 4], "big")
        left -= 1
    return left == 0


def _without_decoder(image: "PillowImage.Image") -> "PillowImage.Image":
    """Return a copy of a decoded WEBP, whose decoder would keep 8 more bytes for each pixel; other images unchanged."""
    if image.format != "WEBP" or type(image) is pillow().Image:
        return image
    copy = image.copy()
    copy.format = image.format
    return copy


def _in_8_bits(image: "PillowImage.Image") -> "PillowImage.Image":
    import numpy as np

    return pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8))


def is_pillow(value: object) -> bool:
    """Whether this is a Pillow image, without importing Pillow."""
    return is_pillow_type(type(value))


@lru_cache(maxsize=1024)
def is_pillow_type(kind: type[Any]) -> bool:
    """Whether instances of this type are Pillow images."""
    return any(base.__module__ == "PIL.Image" and base.__name__ == "Image" for base in kind.__mro__)


def pillow() -> Any:
    """Import the module `PIL.Image`, or say how to get it."""
    try:
        from PIL import Image as module
    except ImportError as error:
        raise ImportError("images need Pillow: pip install pillow") from error
    return module


def require_pillow(where: str) -> None:
    """Raise TargetError if Pillow is not there to be imported; `where` is what needs it."""
    if importlib.util.find_spec("PIL") is None:
        raise TargetError(f"{where} is jitney.Image, which needs Pillow: pip install pillow")


def _sniff(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((name for start, name in _SIGNATURES if data.startswith(start)), "application/octet-stream")
