"""One loaded copy of a model whose `predict` is a generator: a batch becomes parts and ends of its items."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from jitney.codecs import Decoded, pick
from jitney.codecs.refusals import Verdict
from jitney.context import computing
from jitney.errors import InvalidOutput
from jitney.types.steps import counted
from jitney.worker.replica import BatchState, Replica
from jitney.worker.splitting import Failure, predict_split
from jitney.worker.streams.items import Items
from jitney.worker.streams.whole import Endless, most_test_s, steps, whole

if TYPE_CHECKING:
    from jitney._core import Batch, Link, Results


class StreamReplica(Replica):
    """The model, and how to speak to it. Answers leave while the batch runs."""

    def predict(self, state: BatchState, *, overlapped: bool = False) -> None:
        """Run the generator for what somebody still waits for. If it raises, run it again for parts of the batch.

        An item of which a part has left is not computed anew: it fails.
        """
        del overlapped  # what the generator yields is sent before it is asked for more
        decoded = state.decoded
        positions: Sequence[int] = self._wanted(state) if decoded is not None else ()
        if decoded is None or not positions:
            return
        self.begin(state.batch)
        results = state.sent = self._new_results(state.batch, self._options.max_answer_bytes)
        items = self.items(state.batch, decoded, results)
        began = perf_counter()
        call = _Call(self, state, decoded, items, Sending(self._link, items))
        if self._options.batched:
            split = predict_split(call.run, positions, retry=self._options.retry, is_down=self._health.is_down)
            failures, is_clean = split.failures, len(split.parts) == 1
            state.is_out_of_memory = split.is_out_of_memory
        else:
            failures: dict[int, Failure] = {}
            for position in positions:
                failures |= predict_split(call.run, [position], retry=False).failures
            is_clean = True
        computing(())
        state.predict_s = perf_counter() - began
        state.is_clean = is_clean and not failures
        for position in items.open(list(failures)):
            items.fail(position, self._verdict(failures[position], state.source(decoded.indices[position])))
        if items.answered:
            self._health.answered()
        elif call.error is not None:
            self._health.failed(call.error, len(positions), self.method)

    def advance(self, arguments: tuple[Any, ...], wanted: Callable[[], Sequence[bool]]) -> Any:
        """Return the steps of the generator for these arguments."""
        return steps(self._predict(*arguments), wanted, batched=self._options.batched)

    def arguments(self, decoded: Decoded, positions: Sequence[int], state: BatchState, *, again: bool) -> Any:
        """Return what `predict` takes. In a further call its items are read anew: the first may have changed them."""
        if again and self._options.batched:
            return self._codec.arguments_again(decoded, positions, state.batch)
        return self._codec.arguments(decoded, positions)

    def items(self, batch: "Batch", decoded: Decoded, results: "Results") -> Items:
        """Return the items of a batch, of which nothing was sent yet."""
        return Items(self._codec, batch, decoded, results, self._options.max_answer_bytes)

    def _compute_again(self, kept: Callable[[], tuple[Any, ...]]) -> None:
        again = whole(self._predict, self._codec, batched=self._options.batched, most_s=most_test_s(self._options))
        with suppress(Endless):
            again(*kept())


SIGN_OF_LIFE_S: Final = 0.5
"""A model that steps and says nothing is reported after this long: the front takes silence of `batch_timeout_s` for a
hang. A wait for a change may take a second longer, so this is well below it."""


class Sending:
    """Sends what is new of the items of a batch."""

    def __init__(self, link: "Link", items: Items) -> None:
        self.link: Final = link
        self._items = items
        self._began = self._sent_at = perf_counter()

    def send(self) -> None:
        """Send it, or a sign of life if there has been nothing for long."""
        now = perf_counter()
        if self._items.has_news or now - self._sent_at > SIGN_OF_LIFE_S:
            self.link.send_results(self._items.results, now - self._began)
            self._sent_at, self._items.has_news = now, False


class _Call:
    """Calls of the generator for one batch."""

    def __init__(
        self, replica: StreamReplica, state: BatchState, decoded: Decoded, items: Items, sending: Sending
    ) -> None:
        self._replica = replica
        self._sending = sending
        self._state = state
        self._decoded = decoded
        self._items = items
        self._is_again = False
        self.error: BaseException | None = None
        """What the last call raised that failed."""

    def run(self, positions: Sequence[int]) -> None:
        """Run the generator for these items, as far as they have not ended."""
        items, state = self._items, self._state
        positions = items.open(positions)
        if not positions:
            return
        items.restart(positions)
        indices = pick(self._decoded.indices, positions)
        computing(pick(state.ids, indices), state.batch, indices)
        arguments = self._replica.arguments(self._decoded, positions, state, again=self._is_again)
        self._is_again = True
        outcome_failed = partial(self._failed, alone=True)

        def still_open() -> list[bool]:
            is_open = set(items.open(positions))
            return [position in is_open for position in positions]

        try:
            for outcomes in self._replica.advance(arguments, still_open):
                items.take(positions, counted(outcomes, len(positions)), outcome_failed)
                self._sending.send()
                items.leave_out_unwanted(positions)
                self._wait_while_paused(positions)
                if not items.open(positions):
                    return
            items.end(positions, outcome_failed)
            self._sending.send()
        except InvalidOutput as error:
            self.error = error
            for position in items.open(positions):
                items.fail(position, self._failed(position, error, alone=True))
        except BaseException as error:
            self._replica.raise_if_broken(error)
            self.error = error
            for position in items.open(positions):
                if items.has_begun(position):
                    items.fail(position, self._failed(position, error, alone=len(positions) == 1))
            raise
        finally:
            self._replica.end_child()

    def _wait_while_paused(self, positions: Sequence[int]) -> None:
        """Wait while no client of these items reads. A batch goes on for the ones that do: it cannot be divided."""
        items, link = self._items, self._sending.link
        while True:
            changes = link.changes()
            paused = set(link.paused())
            left = items.open(positions) if paused else ()
            if not left or any(items.id(position) not in paused for position in left):
                return
            link.wait_for_change(changes, SIGN_OF_LIFE_S / 2)
            items.leave_out_unwanted(positions)
            self._sending.send()

    def _failed(self, position: int, error: BaseException, *, alone: bool) -> Verdict:
        return self._replica.failed(error, self._state, self._decoded.indices[position], alone=alone)
