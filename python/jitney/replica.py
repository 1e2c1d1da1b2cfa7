"""One loaded copy of a model: a batch becomes results in three steps, and every item gets exactly one outcome.

The steps may run on three threads (see `pipeline`); each `Trip` is in the hands of one of them at a time.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from jitney.codecs import Codec, Decoded, pick
from jitney.codecs.owning import Kept, NotOwned, owned
from jitney.codecs.refusals import Verdict, told
from jitney.config import DeploymentOptions
from jitney.context import computing
from jitney.errors import NOT_NOW, InvalidInput, InvalidOutput, ModelFailed
from jitney.failures import Told, one_line, sayable
from jitney.splitting import Failure, Part, Split, predict_split

if TYPE_CHECKING:
    from jitney._core import Batch, Link, Results


@dataclass(slots=True)
class Trip:
    """One batch on its way through the worker."""

    batch: "Batch"
    ids: list[int]
    decoded: Decoded | None = None
    parts: list[Part] = field(default_factory=list[Part])
    """What `predict` returned, or outcomes kept of it; positions are places in `decoded.indices`."""
    verdicts: dict[int, Verdict] = field(default_factory=dict[int, Verdict])
    """By the item's place in the batch."""
    decode_s: float = 0.0
    predict_s: float = 0.0
    encode_s: float = 0.0
    is_clean: bool = False
    """`predict` saw each item once and raised nothing, so that its time says what such a batch costs."""
    is_out_of_memory: bool = False
    """The batch was too large for the memory of the device."""


class Replica:
    """The model, and how to speak to it."""

    def __init__(  # noqa: PLR0913 -- each is another part of the worker
        self,
        link: "Link",
        predict: Callable[..., object],
        codec: Codec,
        options: DeploymentOptions,
        new_results: "Callable[[Batch], Results]",
        *,
        told: Told | None = None,
    ) -> None:
        self._link = link
        self._predict = predict
        self._codec = codec
        self._options = options
        self._new_results = new_results
        self._told = told or Told()
        self._process = os.getpid()

    def decode(self, batch: "Batch") -> Trip:
        """Make what `predict` takes of what came; items that are not what it takes end here."""
        began = perf_counter()
        trip = Trip(batch, batch.ids)
        try:
            trip.decoded = self._codec.decode(batch)
        except BaseException as error:
            self._told.tell("decoding a batch", error, trip.ids[0])
            trip.verdicts = {index: Verdict("internal", one_line(error)) for index in range(len(trip.ids))}
        else:
            trip.verdicts = {index: self._refused(error, trip.ids[index]) for index, error in trip.decoded.errors}
        trip.decode_s = perf_counter() - began
        return trip

    def predict(self, trip: Trip, *, overlapped: bool = False) -> None:
        """Compute what somebody still waits for."""
        decoded = trip.decoded
        positions: Sequence[int] = self._wanted(trip) if decoded is not None else ()
        if decoded is None or not positions:
            return
        if not self._options.retry:
            # Where items may run again, the front takes the batch that runs to have started.
            self._link.started(trip.batch)
        began = perf_counter()
        split = self._split(trip, decoded, positions, overlapped=overlapped)
        computing(())
        trip.parts = split.parts
        trip.predict_s = perf_counter() - began
        trip.is_out_of_memory = split.is_out_of_memory
        trip.is_clean = not split.failures and (len(split.parts) == 1 or not self._options.batched)
        for position, failure in split.failures.items():
            index = decoded.indices[position]
            if not _is_said_to_client(failure):
                self._told.tell("predict", failure.error, trip.ids[index])
            trip.verdicts[index] = _conviction(failure)

    def finish(self, trip: Trip) -> None:
        """Encode the answers and send one outcome per item."""
        began = perf_counter()
        results = self._encode(trip)
        trip.encode_s = perf_counter() - began
        self._link.finish(results, trip.decode_s, trip.predict_s, trip.encode_s, trip.is_clean, trip.is_out_of_memory)

    def _refused(self, error: InvalidInput | ModelFailed, item: int) -> Verdict:
        if isinstance(error, InvalidInput):
            return told(error)
        self._told.tell("decoding an item", error.__cause__ or error, item)
        return Verdict(error.reason, error.message)

    def _wanted(self, trip: Trip) -> Sequence[int]:
        assert trip.decoded is not None
        wanted = trip.batch.wanted()
        if False not in wanted:
            return range(len(trip.decoded.indices))
        positions: list[int] = []
        for position, index in enumerate(trip.decoded.indices):
            if wanted[index]:
                positions.append(position)
            else:
                # The front knows why nobody waits (cancelled, or its deadline passed) and takes this for left out.
                trip.verdicts[index] = Verdict("cancelled", "nobody waits for this answer any more")
        return positions

    def _split(self, trip: Trip, decoded: Decoded, positions: Sequence[int], *, overlapped: bool) -> Split:
        is_batched = self._options.batched
        # Whether the next call can begin before the answers of this one are sent. One call alone is spared the copy.
        is_followed = overlapped or not (is_batched or len(positions) == 1)
        calls = 0

        def call(some: Sequence[int]) -> object:
            nonlocal calls
            calls += 1
            is_retry = is_batched and calls > 1
            computing(pick(trip.ids, pick(decoded.indices, some)))
            if is_retry:
                # The call that raised may have changed its items before.
                arguments = self._codec.arguments_again(decoded, some, trip.batch)
            else:
                arguments = self._codec.arguments(decoded, some)
            try:
                output = self._predict(*arguments)
            finally:
                self._end_child()
            return self._keep(output, trip, decoded, some) if is_followed or is_retry else output

        if is_batched:
            return predict_split(call, positions, retry=self._options.retry)
        split = Split()
        for position in positions:
            alone = predict_split(call, [position], retry=False)
            split.parts += alone.parts
            split.failures |= alone.failures
        return split

    def _end_child(self) -> None:
        """End a process that `predict` forked and that came back from it: two readers of one link tear its frames."""
        if os.getpid() != self._process:
            os._exit(1)

    def _keep(self, output: object, trip: Trip, decoded: Decoded, positions: Sequence[int]) -> object:
        """Make an output independent of what the model does next: a copy, or its outcomes. Never raises.

        Here `predict` has returned: what goes wrong now fails these items and says nothing about the input.
        """
        first = trip.ids[decoded.indices[positions[0]]]
        try:
            return owned(output)
        except NotOwned:
            pass
        except BaseException as error:
            self._told.tell("copying what predict returned", error, first)
        kept = Kept()
        try:
            for index, error in self._codec.encode(output, decoded, positions, trip.batch, cast("Any", kept)):
                self._told.tell("an answer of predict", error, trip.ids[index])
        except BaseException as error:
            kept, verdict = Kept(), self._unencodable(error, first)
            for index in pick(decoded.indices, positions):
                kept.error(index, verdict.reason, verdict.detail)
        return kept

    def _encode(self, trip: Trip) -> "Results":
        """Write every outcome once. A part that is no answer for its items fails as a whole.

        What it may have written by then is thrown away: the results are begun anew without it.
        """
        broken: dict[int, Verdict] = {}
        while True:
            results = self._new_results(trip.batch)
            failed: list[tuple[int, BaseException]] = []
            for index, verdict in trip.verdicts.items():
                _write(index, verdict, results)
            for number, part in enumerate(trip.parts):
                assert trip.decoded is not None
                if number in broken:
                    for position in part.positions:
                        _write(trip.decoded.indices[position], broken[number], results)
                    continue
                try:
                    if isinstance(part.output, Kept):
                        part.output.write(results)
                    else:
                        failed += self._codec.encode(part.output, trip.decoded, part.positions, trip.batch, results)
                except BaseException as error:
                    broken[number] = self._unencodable(error, trip.ids[trip.decoded.indices[part.positions[0]]])
                    break
            else:
                for index, error in failed:
                    self._told.tell("an answer of predict", error, trip.ids[index])
                return results

    def _unencodable(self, error: BaseException, item: int) -> Verdict:
        self._told.tell("what predict returned", error, item)
        return Verdict("invalid_output", sayable(error) if isinstance(error, InvalidOutput) else one_line(error))


def _write(index: int, verdict: Verdict, results: "Results") -> None:
    try:
        results.error(index, *verdict)
    except Exception as error:
        # Whatever user code put into its exception: an item without an outcome would take the worker along.
        results.error(index, "internal", f"why this item failed cannot be said: {type(error).__name__}")


def _is_said_to_client(failure: Failure) -> bool:
    """Whether the model raised what the client is meant to read: no fault of the model's, for its author to see."""
    return isinstance(failure.error, InvalidInput) and failure.alone


def _conviction(failure: Failure) -> Verdict:
    if failure.alone or isinstance(failure.error, NOT_NOW):
        return told(failure.error)
    return Verdict("model_failed", f"{one_line(failure.error)} (raised for a batch that held this item)")
