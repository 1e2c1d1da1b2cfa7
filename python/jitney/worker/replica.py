"""One loaded copy of a model: a batch becomes results in three steps, and every item gets exactly one outcome.

The steps may run on three threads (see `pipeline`); each `BatchState` is in the hands of one of them at a time.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from jitney.codecs import Codec, Decoded, pick
from jitney.codecs.encode.copying import CopiedResults, NotCopyable, copy_output
from jitney.codecs.refusals import NOT_WANTED, Verdict, verdict_of
from jitney.config.layers import DeploymentOptions
from jitney.context import computing
from jitney.deployments.model import Abandoned, RunsCoroutines
from jitney.errors import NOT_NOW, Cancelled, InvalidInput, InvalidOutput, ModelFailed, was_asked
from jitney.failures import FailureLog, one_line, printable
from jitney.worker.health import Health, raise_if_permanent
from jitney.worker.splitting import Failure, Part, Split, predict_split

if TYPE_CHECKING:
    from jitney._core import Batch, Link, Results


_MOST_NAMES: Final = 32
"""Requests that a failure of a whole batch names in the log; further ones are counted."""


@dataclass(slots=True)
class BatchState:
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
    sent: "Results | None" = None
    """Where parts were written that are sent already."""

    def source(self, *indices: int) -> str:
        """Name the requests of items for the log; the items themselves if their requests have no ids."""
        names = pick(self.batch.request_ids, indices)
        kind, names = ("request", names) if all(names) else ("item", [str(self.ids[index]) for index in indices])
        names = list(dict.fromkeys(names))  # several items may be of one request
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names[:_MOST_NAMES])}{more}"


class Replica:
    """The model, and how to speak to it."""

    def __init__(  # noqa: PLR0913 -- each is another part of the worker
        self,
        link: "Link",
        predict: Callable[..., object],
        codec: Codec,
        options: DeploymentOptions,
        new_results: "Callable[[Batch, int], Results]",
        *,
        failures: FailureLog | None = None,
        health: Health | None = None,
        coroutines: RunsCoroutines | None = None,
        method: str = "predict",
    ) -> None:
        self._link = link
        self._predict = predict
        self._codec = codec
        self._options = options
        self._new_results = new_results
        self._failures = failures or FailureLog()
        self._health = health or Health()
        self._coroutines = coroutines
        self.method: Final = method
        self._process = os.getpid()

    @property
    def decode_runs_user_code(self) -> bool:
        """Whether `decode` calls functions that the user wrote, such as validators."""
        return self._codec.decode_runs_user_code

    def decode(self, batch: "Batch") -> BatchState:
        """Make what `predict` takes of what came; items that are not what it takes end here."""
        began = perf_counter()
        state = BatchState(batch, batch.ids)
        try:
            state.decoded = self._codec.decode(batch)
        except BaseException as error:
            self._failures.log("decoding a batch", error, state.source(*range(len(state.ids))))
            state.verdicts = {index: Verdict("internal", one_line(error)) for index in range(len(state.ids))}
        else:
            state.verdicts = {index: self._refused(error, state.source(index)) for index, error in state.decoded.errors}
        state.decode_s = perf_counter() - began
        return state

    def predict(self, state: BatchState, *, overlapped: bool = False) -> None:
        """Compute what somebody still waits for."""
        decoded = state.decoded
        positions: Sequence[int] = self._wanted(state) if decoded is not None else ()
        if decoded is None or not positions:
            return
        self.begin(state.batch)
        kept = self.test_of(state, decoded, positions)
        began = perf_counter()
        split = self._split(state, decoded, positions, overlapped=overlapped)
        state.parts = split.parts
        computing(())
        state.predict_s = perf_counter() - began
        state.is_out_of_memory = split.is_out_of_memory
        state.is_clean = not split.failures and (len(split.parts) == 1 or not self._options.batched)
        self._note_failures(state, decoded, split)
        self._judge(positions, split, kept)

    def begin(self, batch: "Batch") -> None:
        """Say that `predict` begins on a batch. Where items may run again, the front takes that for granted."""
        if not self._options.retry:
            self._link.started(batch)

    def test_of(self, state: BatchState, decoded: Decoded, positions: Sequence[int]) -> Callable[[], object] | None:
        """Return a function that calls `predict` with this item, as a later test of the model.

        None if there is such a test already, or if the item may not run again. This is called before `predict` may
        write to the item. One item is little to keep.
        """
        if self._health.test is not None or len(state.ids) != 1 or not self._options.retry:
            return None
        return partial(self._compute_again, self._codec.keep(decoded, positions, state.batch))

    def _note_failures(self, state: BatchState, decoded: Decoded, split: Split) -> None:
        """Give each failed item its verdict. An error that several items have in common is logged once, with all."""
        positions: dict[tuple[int, bool], list[int]] = {}
        for position, failure in split.failures.items():
            # A model may raise the same object again, for an item alone too.
            positions.setdefault((id(failure.error), failure.alone), []).append(position)
        for together in positions.values():
            failure, indices = split.failures[together[0]], pick(decoded.indices, together)
            verdict = self._verdict(failure, state.source(*indices))
            state.verdicts |= dict.fromkeys(indices, verdict)

    def _verdict(self, failure: Failure, source: str, method: str = "") -> Verdict:
        error = failure.error
        # The client has left: what the model asked for it was cancelled too. The model has not failed.
        if isinstance(error, Abandoned) or (isinstance(error, Cancelled) and was_asked(error)):
            return Verdict("cancelled", error.message)
        if not _is_for_client(failure):
            self._failures.log(method or self.method, failure.error, source)
        return _verdict(failure)

    def _judge(self, positions: Sequence[int], split: Split, test: Callable[[], object] | None) -> None:
        """Note whether `predict` answered anything; raises WorkerBroken if it can answer nothing any more."""
        if not split.parts:
            self._health.failed(split.failures[positions[0]].error, len(positions), self.method)
            return
        self._health.answered()
        if test is not None:
            self._health.test = test

    def _compute_again(self, kept: Callable[[], tuple[Any, ...]]) -> None:
        self._predict(*kept())

    def finish(self, state: BatchState) -> None:
        """Encode the answers and send one outcome per item."""
        began = perf_counter()
        results = self._encode(state)
        state.encode_s = perf_counter() - began
        self._link.finish(
            results, state.decode_s, state.predict_s, state.encode_s, state.is_clean, state.is_out_of_memory
        )

    def _refused(self, error: InvalidInput | ModelFailed, source: str) -> Verdict:
        if isinstance(error, InvalidInput):
            return verdict_of(error)
        self._failures.log("decoding an item", error.__cause__ or error, source)
        return Verdict(error.reason, error.message)

    def _wanted(self, state: BatchState) -> Sequence[int]:
        assert state.decoded is not None
        wanted = state.batch.wanted()
        if False not in wanted:
            return range(len(state.decoded.indices))
        positions: list[int] = []
        for position, index in enumerate(state.decoded.indices):
            if wanted[index]:
                positions.append(position)
            else:
                state.verdicts[index] = NOT_WANTED
        return positions

    def _split(self, state: BatchState, decoded: Decoded, positions: Sequence[int], *, overlapped: bool) -> Split:
        is_batched = self._options.batched
        # Whether the next call can begin before the answers of this one are sent. One call alone is spared the copy.
        is_followed = overlapped or not (is_batched or len(positions) == 1)
        calls = 0

        def call(some: Sequence[int]) -> object:
            nonlocal calls
            calls += 1
            is_retry = is_batched and calls > 1
            indices = pick(decoded.indices, some)
            computing(pick(state.ids, indices), state.batch, indices)
            if is_retry:
                # The call that raised may have changed its items before.
                arguments = self._codec.arguments_again(decoded, some, state.batch)
            else:
                arguments = self._codec.arguments(decoded, some)
            try:
                output = self._call(arguments, state, indices)
            except BaseException as error:
                raise_if_permanent(error, self.method)
                raise
            finally:
                self.end_child()
            return self._keep(output, state, decoded, some) if is_followed or is_retry else output

        if is_batched:
            return predict_split(call, positions, retry=self._options.retry, is_down=self._health.is_down)
        split = Split()
        for position in positions:
            alone = predict_split(call, [position], retry=False)
            split.parts += alone.parts
            split.failures |= alone.failures
        return split

    def _call(self, arguments: tuple[Any, ...], state: BatchState, indices: Sequence[int]) -> object:
        coroutines = self._coroutines
        if coroutines is None or coroutines.predict is None:
            return self._predict(*arguments)

        def is_wanted() -> bool:
            wanted = state.batch.wanted()
            return any(wanted[index] for index in indices)

        return coroutines.one(partial(coroutines.predict, *arguments), is_wanted)

    def write_answer(
        self, output: object, state: BatchState, decoded: Decoded, position: int, results: "Results"
    ) -> None:
        """Write the answer of one item, or why it is none: that replaces what was written of it by then."""
        index = decoded.indices[position]
        try:
            for _, error in self._codec.encode(output, decoded, [position], state.batch, results):
                self._failures.log(f"an answer of {self.method}", error, state.source(index))
        except BaseException as error:
            write_verdict(index, self._unencodable(error, state.source(index)), results)

    def call(self, decoded: Decoded, position: int) -> Any:
        """Return the coroutine, or the asynchronous generator, for one item."""
        assert self._coroutines is not None
        assert self._coroutines.predict is not None
        return self._coroutines.predict(*self._codec.arguments(decoded, [position]))

    def failed(self, error: BaseException, state: BatchState, index: int, *, alone: bool, method: str = "") -> Verdict:
        """Return what the client of an item gets that ends with an exception, of this method or of the served one."""
        source = state.source(index)
        if isinstance(error, InvalidOutput):
            return self._unencodable(error, source, method)
        if isinstance(error, InvalidInput) and alone and not was_asked(error):
            return verdict_of(error)
        return self._verdict(Failure(error, alone), source, method)

    def raise_if_broken(self, error: BaseException, method: str = "") -> None:
        """Raise WorkerBroken if this error says that the process can compute nothing any more."""
        raise_if_permanent(error, method or self.method)

    def results(self, batch: "Batch") -> "Results":
        """Return where the outcomes of a batch are collected."""
        return self._new_results(batch, self._options.max_answer_bytes)

    def log_failure(self, what: str, error: BaseException) -> None:
        """Log an exception of the model that fails no item."""
        self._failures.log(what, error)

    def end_child(self) -> None:
        """End a process that `predict` forked and that came back from it: two readers of one link tear its frames."""
        if os.getpid() != self._process:
            os._exit(1)

    def _keep(self, output: object, state: BatchState, decoded: Decoded, positions: Sequence[int]) -> object:
        """Make an output independent of what the model does next: a copy, or its outcomes. Never raises.

        Here `predict` has returned: what goes wrong now fails these items and says nothing about the input.
        """
        indices = pick(decoded.indices, positions)
        try:
            return copy_output(output)
        except NotCopyable:
            pass
        except BaseException as error:
            self._failures.log(f"copying what {self.method} returned", error, state.source(*indices))
        kept = CopiedResults()
        try:
            for index, error in self._codec.encode(output, decoded, positions, state.batch, cast("Any", kept)):
                self._failures.log(f"an answer of {self.method}", error, state.source(index))
        except BaseException as error:
            kept, verdict = CopiedResults(), self._unencodable(error, state.source(*indices))
            for index in indices:
                kept.error(index, verdict.reason, verdict.detail)
        return kept

    def _encode(self, state: BatchState) -> "Results":
        """Write every outcome once. A part that is not a valid answer for its items fails as a whole.

        What it may have written by then is thrown away: the results are begun anew without it.
        """
        broken: dict[int, Verdict] = {}
        while True:
            results = state.sent or self._new_results(state.batch, self._options.max_answer_bytes)
            failed: list[tuple[int, BaseException]] = []
            for index, verdict in state.verdicts.items():
                write_verdict(index, verdict, results)
            for number, part in enumerate(state.parts):
                assert state.decoded is not None
                if number in broken:
                    for position in part.positions:
                        write_verdict(state.decoded.indices[position], broken[number], results)
                    continue
                try:
                    if isinstance(part.output, CopiedResults):
                        part.output.write(results)
                    else:
                        failed += self._codec.encode(part.output, state.decoded, part.positions, state.batch, results)
                except BaseException as error:
                    broken[number] = self._unencodable(
                        error, state.source(*pick(state.decoded.indices, part.positions))
                    )
                    break
            else:
                for index, error in failed:
                    self._failures.log(f"an answer of {self.method}", error, state.source(index))
                return results

    def _unencodable(self, error: BaseException, source: str, method: str = "") -> Verdict:
        method = method or self.method
        self._failures.log(f"what {method} returned", error, source)
        if isinstance(error, InvalidOutput):
            return Verdict("invalid_output", printable(error))
        # The text of the exception is the model's, and stays in the log.
        return Verdict("invalid_output", f"what {method} returned cannot be encoded: {type(error).__name__}")


class Methods:
    """Several methods of one loaded model. All items of a batch are of one method."""

    def __init__(self, replicas: Mapping[str, Replica]) -> None:
        self._replicas: Final = replicas

    @property
    def decode_runs_user_code(self) -> bool:
        """Whether decoding calls functions that the user wrote, for one method at least."""
        return any(replica.decode_runs_user_code for replica in self._replicas.values())

    def decode(self, batch: "Batch") -> BatchState:
        """Make what the method of this batch takes."""
        return self._replicas[batch.method].decode(batch)

    def predict(self, state: BatchState, *, overlapped: bool = False) -> None:
        """Call the method of this batch."""
        self._replicas[state.batch.method].predict(state, overlapped=overlapped)

    def finish(self, state: BatchState) -> None:
        """Encode and send what the method returned."""
        self._replicas[state.batch.method].finish(state)


def write_verdict(index: int, verdict: Verdict, results: "Results") -> None:
    """Write why an item has no answer."""
    try:
        results.error(index, *verdict)
    except Exception as error:
        # Whatever user code put into its exception: an item without an outcome would take the worker along.
        results.error(index, "internal", f"why this item failed cannot be text: {type(error).__name__}")


def _is_for_client(failure: Failure) -> bool:
    """Whether the model raised what the client is meant to read: no fault of the model's, for its author to see."""
    return isinstance(failure.error, InvalidInput) and failure.alone and not was_asked(failure.error)


def _verdict(failure: Failure) -> Verdict:
    if failure.alone or isinstance(failure.error, NOT_NOW):
        return verdict_of(failure.error)
    return Verdict("model_failed", f"{one_line(failure.error)} (raised for a batch that held this item)")
