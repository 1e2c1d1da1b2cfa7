"""One loaded copy of a model: a batch becomes results in three steps, and every item gets exactly one outcome.

The steps may run on three threads (see `pipeline`); each `Trip` is in the hands of one of them at a time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from jitney import context
from jitney.codecs import Codec, Decoded
from jitney.config import DeploymentOptions
from jitney.errors import InvalidInput, InvalidOutput
from jitney.failures import Told, one_line
from jitney.splitting import Failure, Part, Split, predict_split
from jitney.types import Image

if TYPE_CHECKING:
    from jitney._core import Batch, Link, Results


@dataclass(slots=True)
class Verdict:
    """Why an item has no result: a row of the table of outcomes, and what the client is told."""

    reason: str
    detail: str
    field: str | None = None
    status: int | None = None


@dataclass(slots=True)
class Trip:
    """One batch on its way through the worker."""

    batch: "Batch"
    ids: list[int]
    decoded: Decoded | None = None
    parts: list[Part] = field(default_factory=list[Part])
    """What `predict` returned; positions are places in `decoded.indices`."""
    verdicts: dict[int, Verdict] = field(default_factory=dict[int, Verdict])
    """By the item's place in the batch."""
    decode_s: float = 0.0
    predict_s: float = 0.0
    encode_s: float = 0.0


class Replica:
    """The model, and how to speak to it."""

    def __init__(
        self,
        link: "Link",
        predict: Callable[..., object],
        codec: Codec,
        options: DeploymentOptions,
        new_results: "Callable[[Batch], Results]",
    ) -> None:
        self._link = link
        self._predict = predict
        self._codec = codec
        self._options = options
        self._new_results = new_results
        self._told = Told()

    def decode(self, batch: "Batch") -> Trip:
        """Make what `predict` takes of what came; items that are not what it takes end here."""
        began = perf_counter()
        trip = Trip(batch, batch.ids)
        try:
            trip.decoded = self._codec.decode(batch)
        except Exception as error:
            self._told.tell("decoding a batch", error)
            trip.verdicts = {index: Verdict("internal", one_line(error)) for index in range(len(trip.ids))}
        else:
            trip.verdicts = {index: _refusal(error) for index, error in trip.decoded.errors}
        trip.decode_s = perf_counter() - began
        return trip

    def predict(self, trip: Trip, *, overlapped: bool = False) -> None:
        """Compute what somebody still waits for."""
        decoded = trip.decoded
        positions = self._wanted(trip) if decoded is not None else []
        if decoded is None or not positions:
            return
        self._link.started(trip.batch)
        began = perf_counter()
        split = self._split(trip, decoded, positions)
        context.computing(())
        trip.parts = [Part(part.positions, _owned(part.output)) for part in split.parts] if overlapped else split.parts
        trip.predict_s = perf_counter() - began
        for position, failure in split.failures.items():
            self._told.tell("predict", failure.error)
            trip.verdicts[decoded.indices[position]] = _conviction(failure)

    def finish(self, trip: Trip) -> None:
        """Encode the answers and send one outcome per item."""
        began = perf_counter()
        try:
            results = self._encode(trip)
        except Exception as error:
            self._told.tell("encoding a batch", error)
            results = self._encode_singly(trip)
        trip.encode_s = perf_counter() - began
        self._link.finish(results, trip.decode_s, trip.predict_s, trip.encode_s)

    def _wanted(self, trip: Trip) -> list[int]:
        assert trip.decoded is not None
        wanted = trip.batch.wanted()
        positions: list[int] = []
        for position, index in enumerate(trip.decoded.indices):
            if wanted[index]:
                positions.append(position)
            else:
                trip.verdicts[index] = Verdict("cancelled", "nobody waits for this answer any more")
        return positions

    def _split(self, trip: Trip, decoded: Decoded, positions: list[int]) -> Split:
        count = len(decoded.indices)

        def call(some: Sequence[int]) -> object:
            context.computing([trip.ids[decoded.indices[position]] for position in some])
            return self._predict(*self._codec.arguments(decoded, None if len(some) == count else some))

        if self._options.batched:
            return predict_split(call, positions, retry=self._options.retry)
        split = Split()
        for position in positions:
            alone = predict_split(call, [position], retry=False)
            split.parts += [Part(part.positions, [part.output]) for part in alone.parts]
            split.failures |= alone.failures
        return split

    def _encode(self, trip: Trip) -> "Results":
        results = self._new_results(trip.batch)
        verdicts = dict(trip.verdicts)
        for part in trip.parts:
            assert trip.decoded is not None
            kept = self._sift(part, trip.decoded, verdicts)
            if kept is not None and kept.positions:
                self._codec.encode(kept.output, trip.decoded, kept.positions, trip.batch, results)
        _write(verdicts, results)
        return results

    def _sift(self, part: Part, decoded: Decoded, verdicts: dict[int, Verdict]) -> Part | None:
        """Check that there is one answer per item, and take out the exceptions among them."""
        try:
            self._codec.check(part.output, len(part.positions))
        except InvalidOutput as error:
            self._told.tell("predict", error)
            for position in part.positions:
                verdicts[decoded.indices[position]] = Verdict("invalid_output", str(error))
            return None
        output = part.output
        if not isinstance(output, (list, tuple)) or not any(isinstance(answer, BaseException) for answer in output):  # pyright: ignore[reportUnknownVariableType]
            return part
        pairs: list[tuple[int, Any]] = list(zip(part.positions, output, strict=True))  # pyright: ignore[reportUnknownArgumentType]
        for position, answer in pairs:
            if isinstance(answer, BaseException):
                verdicts[decoded.indices[position]] = _conviction(Failure(answer, alone=True))
        good = [(position, answer) for position, answer in pairs if not isinstance(answer, BaseException)]
        return Part([position for position, _ in good], [answer for _, answer in good])

    def _encode_singly(self, trip: Trip) -> "Results":
        """Try each answer on its own, twice: a failed try may have left half an answer behind."""
        results = self._new_results(trip.batch)
        verdicts = dict(trip.verdicts)
        for part in trip.parts:
            assert trip.decoded is not None
            kept = self._sift(part, trip.decoded, verdicts)
            for offset, position in enumerate(kept.positions if kept is not None else ()):
                index = trip.decoded.indices[position]
                try:
                    for target in (self._new_results(trip.batch), results):
                        answer = _pick(kept.output, offset) if kept is not None else None
                        self._codec.encode(answer, trip.decoded, [position], trip.batch, target)
                except Exception as error:
                    verdicts[index] = Verdict("invalid_output", one_line(error))
        _write(verdicts, results)
        return results


def _write(verdicts: dict[int, Verdict], results: "Results") -> None:
    for index, verdict in verdicts.items():
        results.error(index, verdict.reason, verdict.detail, verdict.field, verdict.status)


def _refusal(error: InvalidInput) -> Verdict:
    return Verdict(error.reason, error.message, error.field, error.status)


def _conviction(failure: Failure) -> Verdict:
    if isinstance(failure.error, InvalidInput) and failure.alone:
        return _refusal(failure.error)
    detail = one_line(failure.error)
    return Verdict("model_failed", detail if failure.alone else f"{detail} (raised for a batch that held this item)")


def _owned(output: Any) -> Any:
    """Copy what the model may compute into again: the next `predict` can begin before these answers are sent.

    Models reuse output arrays (out=, CUDA graphs) and lists; other objects in a list are taken as given away.
    """
    if isinstance(output, Image):
        pixels: Any = output._array  # pyright: ignore[reportPrivateUsage]
        return output if pixels is None else Image(_owned(pixels), format=output.format)
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return type(output)(*(_owned(value) for value in output))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(output, (list, tuple)):
        return [_owned(value) if _is_array(value) or isinstance(value, Image) else value for value in output]  # pyright: ignore[reportUnknownVariableType]
    if hasattr(output, "__dataclass_fields__"):
        values = {name: _owned(getattr(output, name)) for name in output.__dataclass_fields__}
        return type(output)(**values)
    if _is_array(output):
        copy = getattr(output, "clone", None) or getattr(output, "copy", None)
        return output if copy is None else copy()
    return output


def _is_array(value: Any) -> bool:
    return hasattr(type(value), "__array__") or hasattr(type(value), "__dlpack__")


def _pick(output: Any, offset: int) -> Any:
    """One item's part of what `predict` returned, still as a batch of one."""
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return type(output)(*(value[offset : offset + 1] for value in output))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if hasattr(output, "__dataclass_fields__"):
        return type(output)(
            **{name: getattr(output, name)[offset : offset + 1] for name in output.__dataclass_fields__}
        )
    return output[offset : offset + 1]
