"""An engine in Python: what `run` and `connect` call in place of the Rust side, in one thread and without batching."""

import asyncio
import itertools
import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from jitney.testing.streams import Event, PythonStream

Raw = tuple[int, Any, str | None]
"""An answer as `embedded.values` reads it: kind, data, media type."""
Compute = Callable[[list[tuple[int, Any]], str | None], list[Raw]]
"""Answers of one request's items; the string is the id of the request."""
Stream = Callable[[tuple[int, Any], str | None], Iterator[Event]]
"""The parts and the end of the answer to one item; the string is the id of the request."""


class Done:
    """Something that was over at once, as `_core.Starting` has it."""

    def wait(self) -> None:
        """Return: it went well."""


class Entrance:
    """The way in to one model. All models of an engine compute on its one thread."""

    def __init__(self, compute: Compute, thread: ThreadPoolExecutor, stream: Stream) -> None:
        self._compute: Final = compute
        self._thread: Final = thread
        self._stream: Final = stream

    def call_and_wait(self, tag: int, data: Any, timeout_s: Any, priority: Any, request_id: str | None) -> Raw:
        """Run one item. There is no deadline, and no queue for a priority."""
        del timeout_s, priority
        [raw] = self._thread.submit(self._compute, [(tag, data)], request_id).result()
        return raw

    def call_many_and_wait(
        self, items: list[tuple[int, Any]], timeout_s: Any, priority: Any, request_id: str | None
    ) -> list[Raw]:
        """Run the items of one request."""
        del timeout_s, priority
        return self._thread.submit(self._compute, items, request_id).result()

    def stream(self, tag: int, data: Any, timeout_s: Any, priority: Any, request_id: str | None) -> PythonStream:
        """Begin one item whose answer comes in parts."""
        del timeout_s, priority
        return PythonStream(self._stream((tag, data), request_id), self._thread)

    def begin(self, items: list[tuple[int, Any]], request_id: str | None) -> "Future[list[Raw]]":
        """Begin the items of one request."""
        return self._thread.submit(self._compute, items, request_id)

    async def later(self, items: list[tuple[int, Any]], request_id: str | None) -> list[Raw]:
        """Run the items of one request without holding up the event loop."""
        return await asyncio.wrap_future(self.begin(items, request_id))


class PythonEngine:
    """Stands for `_core.Engine` and `_core.Remote`."""

    is_of_worker: bool = False

    def __init__(self, entrances: Mapping[str, Entrance], manifests: Mapping[str, Any]) -> None:
        self._entrances: Final = entrances
        self._manifests: Final = json.dumps(manifests)

    def ready(self, timeout_s: float | None = None) -> Done:
        """Return at once: models are there before their engine."""
        del timeout_s
        return Done()

    def close(self) -> Done:
        """Do nothing: the block that made the models ends them."""
        return Done()

    def release(self) -> None:
        """Do nothing."""

    def is_forked(self) -> bool:
        """Return False: there are no threads of Rust's to lose."""
        return False

    def entrance(self, name: str) -> Any:
        """Return the way in to a model."""
        return self._entrances.get(name)

    def manifests(self) -> str:
        """Return the manifests by name, as JSON."""
        return self._manifests

    def metrics(self) -> str:
        """Return no metrics."""
        return ""

    def failure(self) -> None:
        """Return None: it has not ended."""


class UsedModels(PythonEngine):
    """Stands for `_core.Asks`: the models that another one uses."""

    is_of_worker = True

    def hold(self) -> None:
        """Do nothing: calls leave at once."""

    def flush(self) -> None:
        """Do nothing: no call waits."""

    @staticmethod
    def mailbox(event_loop: Any) -> Any:
        """Make the mailbox of an event loop."""
        return PythonMailbox(event_loop)


class PythonMailbox:
    """Stands for `_core.Mailbox`: runs calls as tasks of its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._numbers: Final = itertools.count()
        self._tasks: Final[dict[int, asyncio.Future[Any]]] = {}
        self._ends: Final = socket.socketpair()

    def __del__(self) -> None:
        for end in self._ends:
            end.close()

    def fileno(self) -> int:
        """Return a descriptor that is never readable: nothing arrives from other threads."""
        return self._ends[0].fileno()

    def drain(self) -> None:
        """Do nothing."""

    def call(  # noqa: PLR0913, PLR0917 - as the Rust side has it
        self, entrance: Entrance, tag: int, data: Any, timeout_s: Any, priority: Any, request_id: str | None
    ) -> tuple[asyncio.Future[Any], int]:
        """Begin one item."""
        del timeout_s, priority

        async def first() -> Raw:
            return (await entrance.later([(tag, data)], request_id))[0]

        return self._begin(self._loop.create_task(first()))

    def call_many(
        self,
        entrance: Entrance,
        items: Sequence[tuple[int, Any]],
        timeout_s: Any,
        priority: Any,
        request_id: str | None,
    ) -> tuple[asyncio.Future[Any], int]:
        """Begin the items of one request."""
        del timeout_s, priority
        return self._begin(self._loop.create_task(entrance.later(list(items), request_id)))

    def stream(  # noqa: PLR0913, PLR0917 - as the Rust side has it
        self, entrance: Entrance, tag: int, data: Any, timeout_s: Any, priority: Any, request_id: str | None
    ) -> PythonStream:
        """Begin one item whose answer comes in parts."""
        return entrance.stream(tag, data, timeout_s, priority, request_id)

    def next(self, stream: PythonStream) -> tuple[asyncio.Future[Any], int]:
        """Begin to wait for what comes next of an answer."""
        return self._begin(asyncio.wrap_future(stream.later(), loop=self._loop))

    def wait_for(self, starting: Done) -> tuple[asyncio.Future[Any], int]:
        """Return at once."""
        del starting
        future: asyncio.Future[Any] = self._loop.create_future()
        future.set_result(None)
        return self._begin(future)

    def cancel(self, number: int) -> None:
        """Cancel a call."""
        task = self._tasks.pop(number, None)
        if task is not None:
            task.cancel()

    def fail_all(self, reason: str, detail: str) -> None:
        """Cancel all calls."""
        del reason, detail
        for number in list(self._tasks):
            self.cancel(number)

    def _begin(self, future: "asyncio.Future[Any]") -> tuple["asyncio.Future[Any]", int]:
        number = next(self._numbers)
        self._tasks[number] = future

        def end(_: object) -> None:
            self._tasks.pop(number, None)

        future.add_done_callback(end)
        return future, number
