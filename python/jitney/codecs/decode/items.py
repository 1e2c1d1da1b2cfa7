"""Items that are values: text, bytes, images, structs. One decoder per tag, each built once."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from jitney.codecs import tags
from jitney.codecs.arrays import is_array
from jitney.codecs.completing import completed
from jitney.codecs.decode.choices import naming_choices
from jitney.codecs.decode.decoded import IMMUTABLE, Decoded, pick
from jitney.codecs.decode.media import media_hook, read_image
from jitney.codecs.decode.pixels import ItemPixels
from jitney.codecs.decode.settling import settling
from jitney.codecs.plain import sent, sent_hook
from jitney.codecs.refusals import refusal
from jitney.errors import InvalidInput, MalformedBody
from jitney.signature.annotations import Input
from jitney.signature.arrays import is_array_type
from jitney.signature.hints import by_pydantic, holds, is_image, show
from jitney.types.base64 import from_base64
from jitney.types.image import Image, is_pillow

if TYPE_CHECKING:
    from jitney._core import Batch

Decode = Callable[[Any], Any]
_JSON: Final = (b'"', b"[", b"{")
_FORM: Final = re.compile(rb"[A-Za-z_][\w.\[\]-]*=")


class ItemReader:
    """Reads items one by one; what they are is said by a table of decoders by tag."""

    def __init__(
        self,
        decoders: dict[int, Decode | None],
        from_value: Decode,
        takes: str,
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        self._decoders: Final = decoders
        """None: the value is taken unchanged."""
        self._from_value: Final = from_value
        self._takes: Final = takes
        self._schema: Final = schema or {}

    def read(self, batch: "Batch") -> Decoded:
        """Decode all items at once; if any is bad, find out which, one by one."""
        kinds, values = batch.tags, batch.values()
        tag = kinds[0]
        if kinds.count(tag) == len(kinds) and tag in self._decoders:
            decode = self._decoders[tag]
            try:
                column = values if decode is None else list(map(decode, values))
            except BaseException:
                return self._read_singly(kinds, values)
            return Decoded(range(len(column)), [column])
        return self._read_singly(kinds, values)

    def _read_singly(self, kinds: Sequence[int], values: Sequence[Any]) -> Decoded:
        return _each(len(values), lambda index: self._decode(kinds[index], values[index]))

    def _decode(self, tag: int, value: Any) -> Any:
        if tag not in self._decoders:
            raise InvalidInput(f"this deployment takes {self._takes}, not {tags.NAMES[tag]}", status=415)
        decode = self._decoders[tag]
        try:
            return value if decode is None else decode(value)
        except msgspec.ValidationError as error:
            named = naming_choices(error, self._schema)
            if named is error:
                raise
            raise named from None
        except Exception as error:
            refused = refusal(error)
            if tag != tags.JSON or not isinstance(refused, MalformedBody):
                raise
            if _has_half_a_pair(bytes(value)):
                raise MalformedBody(
                    r"a text holds half of a surrogate pair (\ud800 to \udfff), which is not valid text"
                ) from None
            if hint := self._hint(bytes(value)):
                raise MalformedBody(f"{refused.message} ({hint})", status=refused.status) from None
            raise

    def _hint(self, body: bytes) -> str:
        if tags.TEXT in self._decoders and self._takes.startswith("text"):
            return "" if body.lstrip().startswith(_JSON) else "for plain text send content-type: text/plain"
        looks_like_form = "this looks like a form, key=value: send JSON or multipart/form-data"
        return looks_like_form if _FORM.match(body) else ""

    def take(self, decoded: Decoded, positions: Sequence[int] | None) -> tuple[Any, ...]:
        """Return a list of these items, a new one each time: `predict` may change it and still be called again."""
        [column] = decoded.columns
        return (list(column if positions is None else pick(column, positions)),)

    def take_again(self, decoded: Decoded, positions: Sequence[int], batch: "Batch") -> tuple[Any, ...]:
        """Decode these items anew, unless they are of types that cannot have been changed."""
        if IMMUTABLE.issuperset(map(type, decoded.columns[0])):
            return self.take(decoded, positions)
        kinds, values = batch.tags, batch.values()
        indices: Sequence[int] = pick(decoded.indices, positions)
        return ([self._decode(kinds[index], values[index]) for index in indices],)

    def keep(self, decoded: Decoded, positions: Sequence[int], batch: "Batch") -> Callable[[], Decoded]:
        """Decode these items anew in each call of what is returned; it keeps their batch."""
        return lambda: Decoded(range(len(positions)), list(self.take_again(decoded, positions, batch)))

    def one(self, decoded: Decoded, position: int) -> tuple[Any, ...]:
        """Return one item."""
        return (decoded.columns[0][position],)

    def from_python(self, values: list[Any]) -> Decoded:
        """Check example values as if they had come over the wire."""
        return _each(len(values), lambda index: self._from_value(values[index]))


def _has_half_a_pair(body: bytes) -> bool:
    """Whether this is JSON, but for half a character; msgspec calls it truncated."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _each(count: int, decode: Callable[[int], Any]) -> Decoded:
    good: list[int] = []
    decoded = Decoded(good, [[]])
    for index in range(count):
        try:
            value = decode(index)
        except BaseException as error:  # SystemExit of a struct's own code must not end the worker
            decoded.errors.append((index, refusal(error)))
        else:
            good.append(index)
            decoded.columns[0].append(value)
    return decoded


def item_reader(declared: Input, max_pixels: int) -> ItemReader:
    """Build the reader of a deployment that takes lists of values."""
    if declared.kind == "image":
        return _image_reader(max_pixels)
    if by_pydantic(declared.item):
        return _pydantic_reader(declared.item)
    return _msgspec_reader(declared, max_pixels)


def _is_media(annotation: Any) -> bool:
    return is_image(annotation) or is_array_type(annotation)


def _msgspec_reader(declared: Input, max_pixels: int) -> ItemReader:
    item = declared.item
    pixels = ItemPixels(max_pixels)
    hook = media_hook(pixels)

    def finished(decode: Decode) -> Decode:
        decode = settling(completed(decode, item), item)
        return pixels.counting(decode) if holds(item, _is_media) else decode

    from_json = finished(msgspec.json.Decoder(item, dec_hook=hook).decode)
    from_msgpack = finished(msgspec.msgpack.Decoder(item, dec_hook=hook).decode)
    decoders: dict[int, Decode | None] = {tags.JSON: from_json, tags.MSGPACK: from_msgpack}
    takes = "JSON or msgpack"
    if declared.kind == "bytes":
        decoders[tags.BYTES] = None if item is bytes else lambda value: msgspec.convert(value, item)
        takes = "raw bytes, base64 in JSON, or msgpack"
    else:
        # A string may also be text for a type such as Literal or an enumeration; a struct refuses it by itself.
        decoders[tags.TEXT] = None if item is str else lambda value: msgspec.convert(value, item)
        takes = f"text, {takes}" if declared.kind == "text" else takes

    def from_value(value: Any) -> Any:
        # Through JSON and back: whatever the wire would refuse is refused.
        return from_json(msgspec.json.encode(sent(value), enc_hook=sent_hook))

    return ItemReader(decoders, from_value, takes, declared.schema)


def _pydantic_reader(item: Any) -> ItemReader:
    from jitney.signature.pydantic.adapter import Adapter  # noqa: PLC0415 -- it imports pydantic

    adapter = Adapter(item)
    validate, unpack = adapter.validate_unpacked, msgspec.msgpack.Decoder().decode

    def from_value(value: Any) -> Any:
        return adapter.validate_json(msgspec.json.encode(sent(value), enc_hook=sent_hook))

    decoders: dict[int, Decode | None] = {
        tags.JSON: adapter.validate_json,
        tags.MSGPACK: lambda value: validate(unpack(value)),
    }
    return ItemReader(decoders, from_value, f"JSON or msgpack of {show(item)}")


def _image_reader(max_pixels: int) -> ItemReader:
    from_json = msgspec.json.Decoder(str).decode
    from_msgpack = msgspec.msgpack.Decoder(bytes).decode

    def read(data: bytes) -> Image:
        return read_image(data, max_pixels)

    def from_value(value: Any) -> Image:
        if isinstance(value, Image):
            return read(value.encode())
        if is_pillow(value) or is_array(value):
            return read(Image(value).encode())
        if isinstance(value, str):
            try:
                return read(from_base64(_without_scheme(value)))
            except ValueError:
                file = "the bytes of the file: Path(…).read_bytes()"
                raise InvalidInput(f"a string is an image as base64, and {value[:60]!r} is not; give {file}") from None
        return read(msgspec.convert(value, bytes))

    decoders: dict[int, Decode | None] = {
        tags.BYTES: read,
        tags.JSON: lambda value: read(_image_from_base64(from_json(value))),
        tags.MSGPACK: lambda value: read(from_msgpack(value)),
    }
    return ItemReader(decoders, from_value, "an image as raw bytes, base64 in JSON, or msgpack")


def _image_from_base64(text: str) -> bytes:
    try:
        return from_base64(_without_scheme(text))
    except ValueError as error:
        how = "send the bytes of the file with content-type: image/*, or their base64"
        raise MalformedBody(f"expected an image as base64: {error}; {how}") from None


def _without_scheme(text: str) -> str:
    """Drop the `data:image/png;base64,` that browsers put before it."""
    head, comma, rest = text.partition(",")
    return rest if comma and head.startswith("data:") and head.endswith(";base64") else text
