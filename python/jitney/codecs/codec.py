"""The codec of one deployment: what came becomes arguments of `predict`, what it returned becomes outcomes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from jitney.codecs.decode.decoded import Decoded, Reader, pick
from jitney.codecs.decode.items import item_reader
from jitney.codecs.decode.mixed import MixedReader
from jitney.codecs.decode.stacked import ArrayReader
from jitney.codecs.decode.user_code import runs_user_code
from jitney.codecs.encode import answers
from jitney.codecs.encode.writer import Writer
from jitney.config.layers import DeploymentOptions
from jitney.errors import InvalidOutput
from jitney.failures import shown
from jitney.signature.annotations import Input, Signature
from jitney.signature.fields import alternatives
from jitney.types.response import Response

if TYPE_CHECKING:
    from jitney._core import Batch, Results


class Codec:
    """Built once per replica; it keeps no part of a batch, so its methods may run on several threads."""

    def __init__(self, signature: Signature, options: DeploymentOptions) -> None:
        declared = signature.input
        self._reader: Final = _reader(declared, options.max_pixels)
        self._writer: Final = Writer(signature.output)
        self._method: Final = signature.output.method
        self._is_batched: Final = options.batched
        self._part_kind: Final = signature.output.part.kind if signature.output.part is not None else "any"
        self._kind: Final = signature.output.kind
        self._may_be_none: Final = NoneType in alternatives(signature.output.item)

        part = signature.output.part
        self._part_writer: Final = None if part is None else Writer(part, is_part=True)

        self.decode_runs_user_code: Final = runs_user_code(declared)
        self.has_parts: Final = signature.output.part is not None
        """Whether the model answers in parts."""

    def decode(self, batch: "Batch") -> Decoded:
        """Decode and validate all items; bad ones are in `errors` and never reach `predict`."""
        return self._reader.read(batch)

    def arguments(self, decoded: Decoded, positions: Sequence[int] | None = None) -> tuple[Any, ...]:
        """Return the positional arguments of `predict` for these positions, or for all good items.

        Arrays are stacked, n first; `predict` may write to them. With `batched=False` there is exactly one position.
        """
        if self._is_batched:
            return self._reader.take(decoded, positions)
        [position] = range(len(decoded.indices)) if positions is None else positions
        return self._reader.one(decoded, position)

    def arguments_again(self, decoded: Decoded, positions: Sequence[int], batch: "Batch") -> tuple[Any, ...]:
        """Return the arguments of a batched `predict` unchanged, even if an earlier call changed its items."""
        return self._reader.take_again(decoded, positions, batch)

    def keep(self, decoded: Decoded, positions: Sequence[int], batch: "Batch") -> Callable[[], tuple[Any, ...]]:
        """Return what gives the same arguments later and more than once, whatever `predict` does to those of now."""
        made = self._reader.keep(decoded, positions, batch)
        return lambda: self.arguments(made())

    def validate(self, output: Any, count: int) -> None:
        """Do `check`, and look whether every answer is of the declared type: for examples, not for each request."""
        self._writer.validate(self.check(output, count), batched=self._is_batched)

    def check(self, output: Any, count: int) -> Any:
        """Return what is to be written; InvalidOutput, naming expected and got, unless it answers each of `count`."""
        output = self._writer.listed(output)
        if self._is_batched:
            answers.check(output, count, self._method)
        else:
            answers.check_one(output, self._method, may_be_none=self._may_be_none)
        return output

    def encode(
        self, output: Any, decoded: Decoded, positions: Sequence[int] | None, batch: "Batch", results: "Results"
    ) -> list[tuple[int, BaseException]]:
        """Write one outcome per position. An answer that cannot be encoded fails alone, if answers are a list.

        Returns those that could not, by their place in the batch, and why.
        """
        if positions is None:
            positions = range(len(decoded.indices))
        output = self.check(output, len(positions))
        indices = list(pick(decoded.indices, positions))
        if self._is_batched:
            return self._writer.write(output, indices, batch.encodings, results)
        [index] = indices
        return self._writer.write_one(output, index, batch.encodings, results)

    def write_parts(
        self, parts: list[Any], indices: Sequence[int], batch: "Batch", results: "Results"
    ) -> list[tuple[int, BaseException]]:
        """Write a part for each item. Returns those that could not be encoded, by their place in the batch, and why."""
        assert self._part_writer is not None
        return self._part_writer.write(parts, indices, batch.encodings, results)

    def write_answers(
        self, answers: list[Any], indices: Sequence[int], batch: "Batch", results: "Results"
    ) -> list[tuple[int, BaseException]]:
        """Do the same with whole answers."""
        return self._writer.write(answers, indices, batch.encodings, results)

    def size(self, part: Any) -> int:
        """Return about how many bytes a part has."""
        assert self._part_writer is not None
        return self._part_writer.size(part)

    def check_part(self, part: Any) -> None:
        """Raise InvalidOutput, naming the value, unless a part has the declared type. Looks into no value."""
        assert self._part_writer is not None
        self._part_writer.check_part(part)

    def validate_part(self, part: Any) -> None:
        """Do so, and look into the value: for examples, not for each request."""
        assert self._part_writer is not None
        self._part_writer.validate_part(part)

    def join(self, parts: list[Any]) -> Any:
        """Put the parts of an answer together: text and bytes in a row, anything else as a list."""
        if self._kind == "image":
            raise InvalidOutput("the answer is an image, which parts do not make: jitney.End needs `answer=`")
        kind = self._part_kind
        if kind == "any" and parts:
            kind = "text" if all(isinstance(part, str) for part in parts) else "bytes"
            kind = kind if kind == "text" or all(isinstance(part, bytes) for part in parts) else "any"
        try:
            if kind == "bytes":
                return _joined_bytes(parts)
            return "".join(parts) if kind == "text" else list(parts)
        except TypeError as error:
            raise InvalidOutput(f"the parts {shown(parts)} cannot be put together as {kind}: {error}") from error

    def from_python(self, values: list[Any]) -> Decoded:
        """Take example inputs as Python values, with the checks of the wire."""
        return self._reader.from_python(values)


def _joined_bytes(parts: list[Any]) -> Any:
    """Put bytes together. Of parts that are `jitney.Response` the first says the media type and the headers."""
    if not any(isinstance(part, Response) for part in parts):
        return b"".join(parts)
    contents = [part.content if isinstance(part, Response) else part for part in parts]
    first = next(part for part in parts if isinstance(part, Response))
    data = b"".join(content.encode() if isinstance(content, str) else content for content in contents)
    return replace(first, content=data)


def _reader(declared: Input, max_pixels: int) -> Reader:
    if declared.kind == "arrays":
        return ArrayReader(declared.arrays)
    items = item_reader(declared, max_pixels)
    return MixedReader(items, declared.stacked) if declared.stacked else items
