"""Answers to the wire: every item gets exactly one outcome. Whole batches of one kind take the short way."""

# ruff: noqa: PLC0415 -- numpy and pydantic are heavy: imported where it is used

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from jitney.codecs import tags
from jitney.codecs.arrays import host_array, is_array, is_array_type, listed
from jitney.codecs.completing import completing
from jitney.codecs.encode.answers import named_arrays
from jitney.codecs.encode.validating import DeclaredArrays, validate, whole_hint
from jitney.codecs.plain import plain_hook, raw_hook, without_dataclasses
from jitney.codecs.refusals import verdict_of
from jitney.errors import InvalidOutput
from jitney.failures import printable, shown
from jitney.signature.annotations import Output
from jitney.signature.arrays import is_array_type as is_array_annotation
from jitney.signature.hints import holds, is_pydantic, parts, show
from jitney.types.arrays import TOKENS, Embeddings
from jitney.types.host import dtype_name
from jitney.types.image import Image, is_pillow, is_pillow_type
from jitney.types.response import Response
from jitney.types.steps import End

if TYPE_CHECKING:
    from jitney._core import Results

_OCTETS: Final = "application/octet-stream"
_RAW: Final = (bytes, bytearray, memoryview)
_OF_VALUES: Final = ("text", "bytes", "object", "any")
Failed = list[tuple[int, BaseException]]

_FITS: Final[dict[str, Callable[[Any], bool]]] = {
    "text": lambda answer: isinstance(answer, str),
    "bytes": lambda answer: isinstance(answer, (*_RAW, Response)),
    "image": lambda answer: isinstance(answer, Image) or is_pillow(answer),
    "array": is_array,
}
"""Whether an answer is of a kind; a kind that is not here takes all."""


@lru_cache(maxsize=1024)
def _is_plain_type(kind: type[Any]) -> bool:
    """Whether answers of this type are what JSON and msgpack can say, and nothing that has its own form."""
    special = (str, BaseException, Image, Response, type(None), *_RAW)
    return not (issubclass(kind, special) or is_array_type(kind) or is_pillow_type(kind))


class Writer:
    """Writes what `predict` returned into the results of its batch."""

    def __init__(self, declared: Output, *, is_part: bool = False) -> None:
        self._declared: Final = declared
        self._is_part: Final = is_part
        self._fits: Final = _FITS.get(declared.kind)
        self._arrays: Final = DeclaredArrays(declared)
        has_arrays = declared.kind == "object" and holds(declared.item, is_array_annotation)
        encoders = {
            tags.JSON: msgspec.json.Encoder(enc_hook=plain_hook).encode,
            tags.MSGPACK: msgspec.msgpack.Encoder(enc_hook=raw_hook if has_arrays else plain_hook).encode,
        }
        if any(is_dataclass(part) and is_pydantic(part) for part in parts(declared.item)):
            encoders = {tag: _undone(encode) for tag, encode in encoders.items()}
        self._encoders: Final = {tag: completing(encode, declared.item) for tag, encode in encoders.items()}

    def write(self, output: Any, indices: Sequence[int], encodings: Sequence[int], results: "Results") -> Failed:
        """Write one answer per index; `encodings` is that of the whole batch. Returns what could not be encoded."""
        if isinstance(output, list):
            return self._list(cast("list[Any]", output), indices, encodings, results)
        if is_array(output):
            self._rows(indices, "", host_array(output), results)
        elif named := named_arrays(output):
            # All are converted before any is written: an array that cannot be must not leave half an answer behind.
            for name, array in [(name, host_array(value)) for name, value in named.items()]:
                self._rows(indices, _wire_name(output, name), array, results)
        else:
            return self._list(output, indices, encodings, results)
        return []

    def write_one(self, answer: Any, index: int, encodings: Sequence[int], results: "Results") -> Failed:
        """Write the answer of a `predict` that takes one item: its arrays have no batch axis."""
        if is_array(answer):
            self._rows([index], "", host_array(answer)[None], results)
        elif named := named_arrays(answer):
            for name, array in [(name, host_array(value)[None]) for name, value in named.items()]:
                self._rows([index], _wire_name(answer, name), array, results)
        else:
            return self._list([answer], [index], encodings, results)
        return []

    def size(self, answer: Any) -> int:
        """Return about how many bytes an answer has; 1 if it cannot be encoded."""
        if isinstance(answer, (str, bytes, bytearray)):
            return len(answer)
        if is_array(answer) or isinstance(answer, memoryview):
            return int(cast("Any", answer).nbytes)
        if isinstance(answer, Image) or is_pillow(answer):
            return int(answer.width * answer.height)  # to encode it would take long
        try:
            return len(self._value(answer, tags.MSGPACK)[1])
        except Exception:
            return 1

    def listed(self, output: Any) -> Any:
        """Return an array as lists if its values are none of an array's and no array was declared.

        What the others here are given has been through it.
        """
        return listed(output) if self._declared.kind in _OF_VALUES else output

    def validate(self, output: Any, *, batched: bool) -> None:
        """Raise InvalidOutput unless this is of the declared type: looks into every value, so it is for examples."""
        if self._declared.kind == "object" and is_array(output):
            output = host_array(output).tolist()
        if batched and isinstance(output, list):
            validate(self._declared, cast("list[Any]", output))
            for answer in cast("list[Any]", output):
                if not isinstance(answer, BaseException):
                    self._check_kind(answer)
                    self._validate_array(answer, batched=False)
        elif not self._validate_array(output, batched=batched) and not isinstance(output, BaseException):
            validate(self._declared, [output])
            self._check_kind(output)

    def validate_part(self, part: Any) -> None:
        """Do the same with one part of an answer."""
        self.check_part(part)
        if not self._validate_array(part, batched=False):
            validate(self._declared, [part])

    def check_part(self, part: Any) -> None:
        """Raise InvalidOutput, naming the value, unless one part has the declared type. Looks into no value."""
        self._check_kind(part)

    def _validate_array(self, output: Any, *, batched: bool) -> bool:
        named = {"": output} if is_array(output) else named_arrays(output)
        named = {_wire_name(output, name): value for name, value in named.items()}
        if "" in named or self._declared.kind == "arrays":
            for name, value in named.items():
                array = host_array(value)
                self._arrays.check(name, dtype_name(array.dtype), array.shape[1:] if batched else array.shape)
            return bool(named)
        return False

    def _rows(self, indices: Sequence[int], name: str, array: Any, results: "Results") -> None:
        dtype = dtype_name(array.dtype)
        self._arrays.check(name, dtype, array.shape[1:])
        results.rows(indices, name, dtype, array.shape[1:], array)

    def _list(self, answers: list[Any], indices: Sequence[int], encodings: Sequence[int], results: "Results") -> Failed:
        kinds: set[type[Any]] = set(map(type, answers))
        try:
            if kinds == {str} and self._declared.kind in ("text", "any", "object"):
                results.values(indices, tags.TEXT, list(map(str.encode, answers)))
                return []
            if kinds == {bytes} and self._declared.kind in ("bytes", "any"):
                results.values(indices, tags.BYTES, answers, _OCTETS)
                return []
            if self._declared.kind in ("any", "object") and len(kinds) == 1 and _is_plain_type(next(iter(kinds))):
                self._encoded(answers, indices, encodings, results)
                return []
        except BaseException:
            # One of them cannot be encoded: nothing has been written yet, so find out which.
            pass
        return self._singly(answers, indices, encodings, results)

    def _encoded(
        self, answers: list[Any], indices: Sequence[int], encodings: Sequence[int], results: "Results"
    ) -> None:
        if len(encodings) == encodings.count(encodings[0]):
            encode = self._encoder(type(answers[0]), encodings[0])
            results.values(indices, encodings[0], list(map(encode, answers)))
            return
        data = [self._encoders[encodings[index]](answer) for index, answer in zip(indices, answers, strict=True)]
        for tag in self._encoders:
            places = [place for place, index in enumerate(indices) if encodings[index] == tag]
            if places:
                results.values([indices[place] for place in places], tag, [data[place] for place in places])

    def _encoder(self, kind: Any, tag: int) -> Callable[[Any], bytes]:
        if tag == tags.JSON and is_pydantic(kind):
            from jitney.signature.pydantic.adapter import adapter_of

            to_json = adapter_of(kind).to_json
            return lambda answer: to_json(answer, plain_hook)
        return self._encoders[tag]

    def _singly(
        self, answers: list[Any], indices: Sequence[int], encodings: Sequence[int], results: "Results"
    ) -> Failed:
        failed: Failed = []
        rows: dict[tuple[str, tuple[int, ...]], list[tuple[int, Any]]] = defaultdict(list)
        for index, answer in zip(indices, answers, strict=True):
            try:
                if isinstance(answer, BaseException):
                    results.error(index, *verdict_of(answer))
                    continue
                self._check_kind(answer)
                answer = self.listed(answer)  # noqa: PLW2901 -- the same answer, in the form that is sent
                if is_array(answer):
                    array = host_array(answer)
                    self._arrays.check("", dtype_name(array.dtype), array.shape)
                    rows[dtype_name(array.dtype), array.shape].append((index, array))
                else:
                    tag, data, media_type = self._value(answer, encodings[index])
                    results.values([index], tag, [data], media_type)
            except BaseException as error:
                results.error(index, "invalid_output", printable(error))
                failed.append((index, error))
        for same in rows.values():
            self._stacked(same, results)
        return failed

    def _stacked(self, same: list[tuple[int, Any]], results: "Results") -> None:
        import numpy as np

        array = np.stack([array for _, array in same]) if len(same) > 1 else same[0][1][None]
        self._rows([index for index, _ in same], "", array, results)

    def _value(self, answer: Any, encoding: int) -> tuple[int, bytes, str | None]:
        if isinstance(answer, str):
            return tags.TEXT, answer.encode(), None
        if isinstance(answer, _RAW):
            return tags.BYTES, bytes(cast("bytes", answer)), _OCTETS
        if is_pillow(answer):
            answer = Image(answer)
        if isinstance(answer, Image):
            return tags.BYTES, answer.encode(), answer.media_type
        if isinstance(answer, Response):
            return self._response(answer, encoding)
        try:
            return encoding, self._encoders[encoding](answer), None
        except BaseException as error:
            raise InvalidOutput(
                f"an answer of type {type(answer).__qualname__} cannot be encoded: {printable(error)}"
            ) from error

    def _response(self, answer: Response, encoding: int) -> tuple[int, bytes, str | None]:
        if answer.media_type is None:
            tag, data, media_type = self._value(answer.content, encoding)
            return tag, data, answer.head(media_type)
        _, data, _ = self._value(answer.content, tags.JSON)
        return tags.BYTES, data, answer.head(answer.media_type)

    def _check_kind(self, answer: Any) -> None:
        if self._fits is None or self._fits(answer):
            return
        expected = self._declared.kind if self._declared.item is None else show(self._declared.item)
        got = cast("type[Any]", type(answer)).__qualname__
        if self._is_part:
            raise InvalidOutput(
                f"{self._declared.method} is annotated to yield parts of type {expected}, but one part is "
                f"{shown(answer)}, of type {got}{'; write jitney.End()' if answer is End else ''}"
            )
        raise InvalidOutput(
            f"{self._declared.method} is annotated to return {expected} for each item, but returned {got} for this one"
            f"{whole_hint(self._declared)}"
        )


def _undone(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return lambda value: encode(without_dataclasses(value, plain_hook))


def _wire_name(output: Any, name: str) -> str:
    """Return the name of an array of this output on the link: the vectors of embeddings are the answer itself."""
    if isinstance(output, Embeddings):
        return TOKENS if name == "tokens" else ""
    return name
