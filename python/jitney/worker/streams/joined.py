"""Items that joined together and run side by side: what is called for each of them, and where its answer goes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from jitney.codecs.refusals import Verdict
from jitney.context import computing_alone
from jitney.errors import InvalidOutput
from jitney.types.steps import End
from jitney.worker.replica import BatchState, Replica, write_verdict
from jitney.worker.streams.replica import StreamReplica

if TYPE_CHECKING:
    from jitney._core import Batch, Results


@dataclass(frozen=True, slots=True)
class ItemTask:
    """What the task of an item does for it."""

    raise_if_cancelled: Callable[[], None]
    has_news: Callable[[], None]
    """Sends what was written of the item."""
    go_on: Callable[[], Awaitable[None]]
    """Waits while the client of the item does not read."""


class JoinedItems:
    """Items that came in one frame. Each of them runs and ends on its own, with a whole answer.

    An item is named by its position among the items that could be decoded. It is open until it has ended.
    """

    def __init__(self, replica: Replica, batch: "Batch") -> None:
        self.replica: Final = replica
        self.state: Final[BatchState] = replica.decode(batch)
        self.results: Final[Results] = replica.results(batch)
        for index, verdict in self.state.verdicts.items():
            write_verdict(index, verdict, self.results)
        decoded = self.state.decoded
        self._indices: Final = [] if decoded is None else list(decoded.indices)
        self._open: Final = set(range(len(self._indices)))

    @property
    def open(self) -> list[int]:
        """The items that have not ended."""
        return sorted(self._open)

    def unwanted(self) -> list[int]:
        """Return the open items for which no request waits any more."""
        wanted = self.state.batch.wanted()
        return [position for position in self.open if not wanted[self._indices[position]]]

    def test_of(self) -> Callable[[], object] | None:
        """Return a function that calls `predict` with the first item, as a later test of the model.

        None if there is such a test already, or if the item may not run again.
        """
        decoded = self.state.decoded
        return None if decoded is None or not self._open else self.replica.test_of(self.state, decoded, [0])

    def id(self, position: int) -> int:
        """Return the id of an item."""
        return self.state.ids[self._indices[position]]

    async def run(self, position: int, task: ItemTask) -> None:
        """Compute one item."""
        self._enter(position)
        assert self.state.decoded is not None
        answer = await self.replica.call(self.state.decoded, position)
        task.raise_if_cancelled()
        self.replica.write_answer(answer, self.state, self.state.decoded, position, self.results)
        self._open.discard(position)
        task.has_news()

    def fail(self, position: int, verdict: Verdict) -> None:
        """End an item without an answer, unless it has ended."""
        if position in self._open:
            self._open.discard(position)
            write_verdict(self._indices[position], verdict, self.results)

    def failed(self, position: int, error: BaseException) -> None:
        """End an item whose computation raised this."""
        if position in self._open:
            self.fail(position, self.verdict(position, error))

    def verdict(self, position: int, error: BaseException) -> Verdict:
        """Return what the client of an item gets whose computation raised this, and log it."""
        return self.replica.failed(error, self.state, self._indices[position], alone=True)

    def _enter(self, position: int) -> None:
        index = self._indices[position]
        computing_alone([self.state.ids[index]], self.state.batch, [index])


class JoinedStreams(JoinedItems):
    """Items that came in one frame, of a model whose answers come in parts."""

    def __init__(self, replica: StreamReplica, batch: "Batch") -> None:
        super().__init__(replica, batch)
        decoded = self.state.decoded
        self._items: Final = None if decoded is None else replica.items(batch, decoded, self.results)

    def unwanted(self) -> list[int]:
        """Return the open items for which no request waits any more."""
        return [] if self._items is None else self._items.unwanted(self.open)

    async def run(self, position: int, task: ItemTask) -> None:
        """Run the generator of one item to the end of the item. One part of each item leaves in a turn of the loop."""
        self._enter(position)
        items = self._items
        assert items is not None
        assert self.state.decoded is not None
        last: Any = End()
        stream = self.replica.call(self.state.decoded, position)
        async with AsyncExitStack() as stack:
            if hasattr(stream, "aclose"):
                stack.push_async_callback(stream.aclose)
            async for outcome in _iterated(stream):
                task.raise_if_cancelled()
                if isinstance(outcome, (End, BaseException)):
                    last = cast("Any", outcome)
                    break
                items.take([position], [outcome], self.verdict)
                task.has_news()
                if not items.open([position]):
                    break
                await asyncio.sleep(0)
                await task.go_on()
        task.raise_if_cancelled()
        # The generator has ended: an item that was said to have ended takes no place any more.
        items.take([position], [last], self.verdict)
        self._open.discard(position)
        task.has_news()

    def fail(self, position: int, verdict: Verdict) -> None:
        """End an item without an answer, unless it has ended."""
        if position in self._open and self._items is not None and self._items.open([position]):
            self._items.fail(position, verdict)
        self._open.discard(position)


def _iterated(stream: Any) -> AsyncIterator[Any]:
    if not hasattr(stream, "__aiter__"):
        kind = type(stream).__qualname__
        raise InvalidOutput(f"predict is annotated as an asynchronous generator, but it returned a {kind}")
    return cast("AsyncIterator[Any]", stream)
