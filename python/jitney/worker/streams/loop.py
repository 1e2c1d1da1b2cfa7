"""The loop of a worker whose model works in steps: items join and leave between two of them.

The front decides which items may join and when. The worker takes them at its next step without asking, so that a step
waits for no message.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from jitney.codecs import pick
from jitney.codecs.refusals import Verdict
from jitney.context import computing
from jitney.deployments.model import StepFunctions
from jitney.errors import InvalidOutput
from jitney.types.steps import Later, counted
from jitney.worker.health import Health, IdleCheck
from jitney.worker.memory import is_out_of_memory
from jitney.worker.pipeline import guarded, wait_checked
from jitney.worker.replica import BatchState
from jitney.worker.splitting import Split, predict_split
from jitney.worker.streams.items import Items
from jitney.worker.streams.replica import SIGN_OF_LIFE_S, StreamReplica

if TYPE_CHECKING:
    from jitney._core import Batch, Link, Results

Unsent = tuple["Results", Items | None]
"""The results of a batch, and its items if they could be decoded."""


@dataclass(slots=True)
class Active:
    """An item between its admission and its end."""

    items: Items
    """The items with which it joined."""
    position: int
    batch: BatchState
    state: Any
    key: int

    def is_open(self) -> bool:
        """Whether it has not ended."""
        return bool(self.items.open([self.position]))


class StepLoop:
    """Admits, steps and releases until the front says that there are no more items."""

    def __init__(  # noqa: PLR0913 -- each is another part of the worker
        self,
        link: "Link",
        functions: StepFunctions,
        replica: StreamReplica,
        *,
        retry: bool,
        health: Health,
        check: IdleCheck | None = None,
        crash: Callable[[], None] | None = None,
    ) -> None:
        self._link: Final = link
        self._functions: Final = functions
        self._replica: Final = replica
        self._retry: Final = retry
        self._health: Final = health
        self._check: Final = check
        self._crash: Final = crash
        self._active: list[Active] = []
        self._spent: dict[int, float] = {}
        """Seconds of steps by group key, of the keys that have items."""
        self._unsent: list[Unsent] = []
        """Results to which something may have been written since the last step."""
        self._ends = False
        self._is_out_of_memory = False
        """All items together were too many for the memory of the device, since the last step was sent."""
        self._has_refused_alone = False
        """`admit` has once returned jitney.LATER while no item was active."""

    def run(self) -> None:
        """Serve until the end, or until the model is broken, which raises WorkerBroken."""
        guarded(self._run, self._crash)

    def _run(self) -> None:
        while True:
            changes = self._link.changes()
            batches = self._arrived()
            if not batches and not self._active:
                return
            self._leave_out_unwanted()
            began = perf_counter()
            joined = sum(self._admit(batch) for batch in batches)
            join_s = perf_counter() - began
            began = perf_counter()
            stepped = self._step() if self._active else 0
            self._send(stepped, joined, perf_counter() - began, join_s)
            if self._active and not stepped:
                # All are paused. What is sent when nothing has changed is a sign of life.
                self._link.wait_for_change(changes, SIGN_OF_LIFE_S / 2)

    def _arrived(self) -> "list[Batch]":
        """Return the items that may join. Waits for some only while no item is active."""
        batches: list[Batch] = []
        if not self._active and not self._ends:
            wait = self._link.next_batch
            first = wait() if self._check is None else wait_checked(wait, self._check)
            self._ends = first is None
            batches += [first] if first is not None else []
        while not self._ends:
            batch, more = self._link.take()
            self._ends = not more
            if batch is None:
                break
            batches.append(batch)
        return batches

    # ------------------------------------------------------------------------------------------ joining

    def _admit(self, batch: "Batch") -> int:
        """Admit the items of a batch; returns how many joined."""
        self._replica.begin(batch)
        state = self._replica.decode(batch)
        results = self._replica.results(batch)
        self._unsent.append((results, None))
        for index, verdict in state.verdicts.items():
            results.error(index, *verdict)
        decoded = state.decoded
        if decoded is None:
            return 0
        items = self._replica.items(batch, decoded, results)
        self._unsent[-1] = (results, items)
        positions = range(len(decoded.indices))
        items.leave_out_unwanted(positions)
        is_again = False

        def admit(some: Sequence[int]) -> Sequence[Any]:
            nonlocal is_again
            indices = pick(decoded.indices, some)
            computing(pick(state.ids, indices), batch, indices)
            arguments = self._replica.arguments(decoded, some, state, again=is_again)
            is_again = True
            try:
                return counted(self._functions.admit(*arguments), len(some), "admit returned", "states")
            except BaseException as error:
                self._replica.raise_if_broken(error, "admit")
                raise
            finally:
                self._replica.end_child()

        keys = batch.keys
        split, has_later = self._search(admit, items.open(positions)), False
        for part in split.parts:
            for position, found in zip(part.positions, cast("Sequence[Any]", part.output), strict=True):
                self._take_admitted(Active(items, position, state, found, keys[decoded.indices[position]]))
                has_later |= isinstance(found, Later)
        for position, failure in split.failures.items():
            if self._lacks_room(failure.error, self._active):
                items.later(position)
            else:
                items.fail(position, self._not_admitted(items, position, state, failure.error, alone=failure.alone))
        if has_later and not self._active:
            self._log_refused_alone()
        return len(items.open(positions))

    def _log_refused_alone(self) -> None:
        """Say once that an item found no room in an empty model: no end of another item will make room for it."""
        if not self._has_refused_alone:
            self._has_refused_alone = True
            detail = (
                "admit returned jitney.LATER while the model held no item; the item is offered again after a pause, "
                "until its deadline; if it can never fit, return an exception for it"
            )
            self._replica.log_failure("admit", InvalidOutput(detail))

    def _take_admitted(self, active: Active) -> None:
        items, position, found = active.items, active.position, active.state
        if isinstance(found, Later):
            items.later(position)
        elif isinstance(found, BaseException):
            items.fail(position, self._not_admitted(items, position, active.batch, found, alone=True))
        else:
            # A key that becomes active begins with as much time as the one with the least.
            self._spent.setdefault(active.key, min(self._spent.values(), default=0.0))
            self._active.append(active)

    # ------------------------------------------------------------------------------------------ steps

    def _ready(self) -> list[Active]:
        """Return the items of the key on which the least time was spent; none while all items are paused."""
        ready, spent = self._active, self._spent
        if paused := set(self._link.paused()):
            ready = [active for active in ready if active.items.id(active.position) not in paused]
            if not ready:
                return []
            keys = {active.key for active in ready}
            spent = {key: self._spent[key] for key in keys}
            # A key whose items go on later begins with as much time as the one with the least, as a new key does.
            least = min(spent.values())
            self._spent.update({key: max(least, before) for key, before in self._spent.items() if key not in keys})
        key = min(spent, key=spent.__getitem__)
        return [active for active in ready if active.key == key]

    def _step(self) -> int:
        """Make one step of one key; returns how many items it had."""
        chosen = self._ready()
        if not chosen:
            return 0

        def step(some: Sequence[int]) -> Sequence[Any]:
            ids = [chosen[place].items.id(chosen[place].position) for place in some]
            computing(ids, chosen[some[0]].items.batch)
            try:
                return counted(
                    self._functions.step([chosen[place].state for place in some]), len(some), "step returned"
                )
            except BaseException as error:
                self._replica.raise_if_broken(error, "step")
                raise
            finally:
                self._replica.end_child()

        began = perf_counter()
        split = self._search(step, range(len(chosen)))
        computing(())
        self._spent[chosen[0].key] += perf_counter() - began
        for part in split.parts:
            self._take_step([chosen[place] for place in part.positions], part.output)
        for place, failure in split.failures.items():
            one = chosen[place]
            others = [active for active in self._active if active is not one]
            if self._lacks_room(failure.error, others) and not one.items.has_begun(one.position):
                one.items.later(one.position)
            else:
                verdict = self._failed(one.items, one.position, one.batch, failure.error, alone=failure.alone)
                one.items.fail(one.position, verdict)
        if split.is_out_of_memory:
            self._give_back_newest()
        if split.parts:
            self._health.answered()
        self._release_ended()
        if not split.parts:
            self._health.failed(split.failures[0].error, len(chosen), "step")
        return len(chosen)

    def _search(self, call: Callable[[Sequence[int]], object], places: Sequence[int]) -> Split:
        """Call it for all; if it raises, for smaller and smaller parts."""
        if not places:
            return Split()
        split = predict_split(call, places, retry=self._retry, is_down=self._health.is_down)
        self._is_out_of_memory |= split.is_out_of_memory
        return split

    def _lacks_room(self, error: BaseException, others: Sequence[Active]) -> bool:
        """Whether an item does not fit next to the others. Alone it may, so it is offered again when one has ended."""
        if not (self._retry and others and is_out_of_memory(error)):
            return False
        self._is_out_of_memory = True
        return True

    def _give_back_newest(self) -> None:
        """Give the newest item back of which no part has left: what it holds is free for the others."""
        still_open = [active for active in self._active if active.is_open()]
        newest = [active for active in still_open if not active.items.has_begun(active.position)][-1:]
        if self._retry and len(still_open) > 1:
            for active in newest:
                active.items.later(active.position)

    def _take_step(self, chosen: Sequence[Active], outcomes: Any) -> None:
        """Write what a step says. Items that joined together are written together."""
        together: dict[int, tuple[Active, list[int], list[Any]]] = {}
        for active, outcome in zip(chosen, outcomes, strict=True):
            _, positions, said = together.setdefault(id(active.items), (active, [], []))
            positions.append(active.position)
            said.append(outcome)
        for first, positions, said in together.values():

            def failed(position: int, error: BaseException, of: Active = first) -> Verdict:
                return self._failed(of.items, position, of.batch, error, alone=True)

            try:
                first.items.take(positions, said, failed)
            except InvalidOutput as error:
                for position in first.items.open(positions):
                    first.items.fail(position, failed(position, error))

    def _failed(self, items: Items, position: int, batch: BatchState, error: BaseException, *, alone: bool) -> Verdict:
        return self._replica.failed(error, batch, items.index(position), alone=alone, method="step")

    def _not_admitted(
        self, items: Items, position: int, batch: BatchState, error: BaseException, *, alone: bool
    ) -> Verdict:
        return self._replica.failed(error, batch, items.index(position), alone=alone, method="admit")

    # ------------------------------------------------------------------------------------------ leaving

    def _leave_out_unwanted(self) -> None:
        for items in {id(active.items): active.items for active in self._active}.values():
            items.leave_out_unwanted([active.position for active in self._active if active.items is items])
        self._release_ended()

    def _release_ended(self) -> None:
        ended = [active for active in self._active if not active.is_open()]
        if not ended:
            return
        self._active = [active for active in self._active if active.is_open()]
        keys = {active.key for active in self._active}
        self._spent = {key: spent for key, spent in self._spent.items() if key in keys}
        if self._functions.release is None:
            return
        try:
            self._functions.release([active.state for active in ended])
        except BaseException as error:
            self._replica.raise_if_broken(error, "release")
            self._replica.log_failure("release", error)

    def _send(self, stepped: int, joined: int, step_s: float, join_s: float) -> None:
        results = [results for results, _ in self._unsent]
        self._link.send_step(results, stepped, joined, step_s, join_s, out_of_memory=self._is_out_of_memory)
        self._is_out_of_memory = False
        active = {id(active.items) for active in self._active}
        self._unsent = [(results, items) for results, items in self._unsent if id(items) in active]
