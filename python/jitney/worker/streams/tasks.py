"""The loop of a worker whose `predict` is `async def` and takes one item: a task for each item, side by side.

The front decides which items may join and when; it sends no more than there is room for. An item leaves as soon as its
task has ended. What one turn of the event loop brought is sent in one frame.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from jitney.codecs.refusals import NOT_WANTED, Verdict
from jitney.deployments.coroutines import LOOK_EVERY_S
from jitney.deployments.model import RunsCoroutines
from jitney.errors import WorkerBroken
from jitney.worker.health import Health, IdleCheck
from jitney.worker.pipeline import guarded
from jitney.worker.replica import Replica
from jitney.worker.streams.joined import ItemTask, JoinedItems, JoinedStreams
from jitney.worker.streams.replica import StreamReplica

if TYPE_CHECKING:
    from jitney._core import Batch, Link

_SIGN_OF_LIFE_S: Final = 1.0
"""While items run, a frame is sent after this long although there is no news: it says that the event loop runs."""


@dataclass(eq=False, slots=True)
class RunningItem:
    """An item whose task has not ended."""

    joined: JoinedItems
    """The items with which it joined."""
    position: int
    news_at: float
    """When it joined, said something, or was cancelled."""
    test: Callable[[], object] | None
    """Calls `predict` with this item, for later."""
    task: "asyncio.Task[BaseException | None]" = field(init=False)
    verdict: Verdict | None = None
    """With what it ends because it was cancelled."""

    def cancel(self, verdict: Verdict, now: float) -> None:
        """Cancel the task. The item ends when the task has ended."""
        self.verdict, self.news_at = verdict, now
        self.task.cancel()

    def raise_if_cancelled(self) -> None:
        """Raise CancelledError after `cancel`: the model may have caught the first one, and gone on."""
        if self.verdict is not None:
            raise asyncio.CancelledError


class TaskLoop:
    """Runs the items that join until the front says that there are no more."""

    def __init__(  # noqa: PLR0913 -- each is another part of the worker
        self,
        link: "Link",
        coroutines: RunsCoroutines,
        replicas: Mapping[str, Replica],
        *,
        batch_timeout_s: float,
        health: Health,
        check: IdleCheck | None = None,
        crash: Callable[[], None] | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._link: Final = link
        self._coroutines: Final = coroutines
        self._loop: Final = coroutines.loop
        self._replicas: Final = replicas
        self._first: Final = next(iter(replicas.values()))
        self._batch_timeout_s: Final = batch_timeout_s
        self._health: Final = health
        self._check: Final = check
        self._crash: Final = crash
        self._clock: Final = clock
        self._running: Final[set[RunningItem]] = set()
        self._unsent: Final[dict[JoinedItems, None]] = {}
        """Items of which something may have to be sent."""
        self._is_flush_due = self._is_looking = False
        self._newcomers = 0
        """Items that joined since the last frame."""
        self._sent_at = clock()
        self._is_test_due = False
        """Whether the model is to be tested, for which the event loop must be stopped."""
        self._paused: frozenset[int] = frozenset()
        """The paused items as of the change with the number `_changes`."""
        self._changes = -1
        self._error: BaseException | None = None
        """Why the worker cannot go on."""
        self._interrupt: Final = asyncio.Event()
        self._ends = False

    def run(self) -> None:
        """Serve until the end, or until the model is broken, which raises WorkerBroken."""
        guarded(self._run, self._crash)

    def _run(self) -> None:
        self._begin()
        try:
            while not self._ends or self._running:
                try:
                    self._coroutines.run(self._until_interrupted())
                except (SystemExit, KeyboardInterrupt) as error:
                    self._first.log_failure("a task of the model's own", error)
                self._settle()
        finally:
            if self._unsent:
                self._flush()

    def _begin(self) -> None:
        """Take what has arrived, and receive what comes later on another thread."""
        while True:
            batch, more = self._link.take()
            if batch is not None:
                self._soon(self._join, batch)
            if not more:
                self._soon(self._end)
                return
            if batch is None:
                break
        threading.Thread(target=guarded, args=(self._receive, self._crash), name="jitney-joins", daemon=True).start()

    def _receive(self) -> None:
        while (batch := self._link.next_batch()) is not None:
            self._soon(self._join, batch)
        self._soon(self._end)

    def _soon(self, step: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(self._safely, step, *arguments)

    def _safely(self, step: Callable[..., None], *arguments: Any) -> None:
        """Make a step of the loop's own. What it raises ends the worker; asyncio would only log it."""
        try:
            step(*arguments)
        except BaseException as error:
            self._error = self._error or error
            self._interrupt.set()

    async def _until_interrupted(self) -> None:
        """Let the items run until something is to be done for which the event loop must be stopped."""
        is_idle = self._check is not None and not self._running
        with suppress(TimeoutError):
            async with asyncio.timeout(self._check.due_in_s() if is_idle and self._check is not None else None):
                await self._interrupt.wait()
        self._interrupt.clear()

    def _settle(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_test_due:
            self._is_test_due = False
            self._health.run_test()
        if self._check is not None and not self._running and not self._ends and self._check.due_in_s() <= 0:
            self._check.run()

    # ------------------------------------------------------------------------------------------ joining

    def _join(self, batch: "Batch") -> None:
        replica = self._replicas.get(batch.method) or self._first
        replica.begin(batch)
        # What decoding the items takes is theirs: their clients have been promised nothing else.
        joined = JoinedStreams(replica, batch) if isinstance(replica, StreamReplica) else JoinedItems(replica, batch)
        for position in joined.unwanted():
            joined.fail(position, NOT_WANTED)
        if batch.has_left_out or len(joined.open) < len(batch):
            self._has_news(joined)
        test = joined.test_of()
        for position in joined.open:
            running = RunningItem(joined, position, self._clock(), test)
            running.task = self._loop.create_task(self._compute(running))
            running.task.add_done_callback(lambda task, of=running: self._safely(self._ended, of, task))
            self._running.add(running)
        self._newcomers += len(joined.open)
        if self._running and not self._is_looking:
            self._is_looking = True
            self._loop.call_later(LOOK_EVERY_S, self._safely, self._look)

    def _end(self) -> None:
        self._ends = True
        self._interrupt.set()

    async def _compute(self, running: RunningItem) -> BaseException | None:
        """Run an item; returns what it raised. A SystemExit that left the task would end the event loop."""
        joined = running.joined

        def has_news() -> None:
            running.news_at = self._clock()
            self._has_news(joined)

        async def go_on() -> None:
            while self._is_paused(joined.id(running.position)):
                running.news_at = self._clock()  # it does not hang: its client does not read
                await asyncio.sleep(LOOK_EVERY_S)

        try:
            await joined.run(running.position, ItemTask(running.raise_if_cancelled, has_news, go_on))
        except BaseException as error:
            return error
        finally:
            joined.replica.end_child()
        return None

    def _is_paused(self, item: int) -> bool:
        changes = self._link.changes()
        if changes != self._changes:
            self._changes, self._paused = changes, frozenset(self._link.paused())
        return item in self._paused

    # ------------------------------------------------------------------------------------------ leaving

    def _ended(self, running: RunningItem, task: "asyncio.Task[BaseException | None]") -> None:
        self._running.discard(running)
        joined, position = running.joined, running.position
        error = asyncio.CancelledError() if task.cancelled() else task.result()
        if running.verdict is not None:
            joined.fail(position, running.verdict)
            self._has_news(joined)
        elif error is not None:
            joined.failed(position, error)
            self._has_news(joined)
            joined.replica.raise_if_broken(error)
            if self._health.note_failure(error, 1, joined.replica.method):
                self._is_test_due = True
                self._interrupt.set()
        else:
            self._health.answered()
            self._health.test = self._health.test or running.test
        if not self._running and (self._ends or self._check is not None):
            self._interrupt.set()

    def _look(self) -> None:
        """Cancel what no request waits for and what hangs; say that the event loop runs."""
        now = self._clock()
        by_items: dict[JoinedItems, dict[int, RunningItem]] = {}
        for running in self._running:
            by_items.setdefault(running.joined, {})[running.position] = running
        for joined, all_running in by_items.items():
            for position in joined.unwanted():
                running = all_running.get(position)
                if running is not None and running.verdict is None:
                    running.cancel(NOT_WANTED, now)
        silent = [one for one in self._running if now - one.news_at > self._batch_timeout_s / 4]
        asking = frozenset(self._link.asking()) if silent else frozenset[int]()
        for running in silent:
            if running.verdict is None and running.joined.id(running.position) in asking:
                running.news_at = now  # it does not hang: it waits for what it asked
            elif now - running.news_at > self._batch_timeout_s:
                self._hangs(running, now)
        if now - self._sent_at > _SIGN_OF_LIFE_S:
            self._flush()
        self._is_looking = bool(self._running)
        if self._is_looking:
            self._loop.call_later(LOOK_EVERY_S, self._safely, self._look)

    def _hangs(self, running: RunningItem, now: float) -> None:
        """Cancel an item that said nothing for too long. If that does not end it, its place is lost."""
        limit = f"{self._batch_timeout_s:g} s (batch_timeout_s)"
        if running.verdict is not None:
            raise WorkerBroken(f"a coroutine was cancelled and has not ended for more than {limit}")
        error = TimeoutError(f"neither a part nor the end for more than {limit}")
        running.cancel(running.joined.verdict(running.position, error), now)

    # ------------------------------------------------------------------------------------------ sending

    def _has_news(self, joined: JoinedItems) -> None:
        """Send what was written of these items when the others of this turn have had theirs."""
        self._unsent[joined] = None
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._safely, self._flush)

    def _flush(self) -> None:
        self._first.end_child()
        self._is_flush_due, self._sent_at = False, self._clock()
        results = [joined.results for joined in self._unsent]
        self._unsent.clear()
        newcomers, self._newcomers = self._newcomers, 0
        self._link.send_step(results, 0, newcomers, 0.0, 0.0)
