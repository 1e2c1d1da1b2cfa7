"""The event loop of a model whose `predict` is `async def`. Only workers of such models load this and `asyncio`."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, suppress
from copy import copy
from typing import Any, Final, TypeVar

from jitney.deployments.model import Abandoned, is_async
from jitney.types.steps import End

LOOK_EVERY_S: Final = 0.05
"""Seconds between two looks at whether requests still wait for the answers of the coroutines that run."""

Value = TypeVar("Value")
_OVER: Final = object()
"""What comes after the last of a generator."""


class Coroutines:
    """The event loop of a model whose `predict` is `async def`, on the thread that loaded the model.

    There is one loop as long as the model lives, so that a client session that the model keeps stays usable.
    """

    def __init__(self) -> None:
        self.loop: Final = asyncio.new_event_loop()
        # For a constructor that makes futures or clients of `asyncio` before the loop runs.
        asyncio.set_event_loop(self.loop)
        self.predict: Callable[..., Any] | None = None

    def of(self, predict: Callable[..., Any]) -> "Coroutines":
        """Return the same event loop for another function of the model."""
        other = copy(self)
        other.predict = predict
        return other

    def waiting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that waits for the result of this one; of a plain function, that function.

        Of an asynchronous generator the result is an iterator over all that it yields.
        """
        if not is_async(function):
            return function

        def wait(*arguments: Any) -> Any:
            return self.run(function(*arguments))

        def iterate(*arguments: Any) -> Iterator[Any]:
            return self._iterated(function(*arguments))

        return iterate if inspect.isasyncgenfunction(function) else wait

    def one(self, call: Callable[[], Awaitable[Any]], is_wanted: Callable[[], bool]) -> Any:
        """Return what one call returns, or raise what it raises; Abandoned as soon as it is not wanted any more."""
        value, error = self.run(self._one(call, is_wanted))
        if error is not None:
            raise error
        return value

    def run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Run the event loop until this coroutine has ended; returns its result."""
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        finally:
            if not task.done():  # another task of the model's raised SystemExit or KeyboardInterrupt
                task.cancel()
                with suppress(BaseException):
                    self.loop.run_until_complete(task)

    def _iterated(self, stream: AsyncIterator[Any]) -> Iterator[Any]:
        """Yield what an asynchronous generator yields, up to the end of its item. It runs in one task."""
        queue: asyncio.Queue[Any] = asyncio.Queue(1)
        task = self.loop.create_task(_put_all(stream, queue))
        try:
            while (found := self.run(_next_of(queue, task))) is not _OVER:
                yield found
        finally:
            task.cancel()
            with suppress(BaseException):
                self.loop.run_until_complete(task)

    def ending(self, close: Callable[[], Any] | None) -> Callable[[], None]:
        """Return a function that calls the model's own `close`, if there is one, and then ends the event loop."""

        def end() -> None:
            try:
                if close is not None:
                    self.waiting(close)()
            finally:
                self._end()

        return end

    def _end(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        self.loop.close()

    async def _one(
        self, call: Callable[[], Awaitable[Any]], is_wanted: Callable[[], bool]
    ) -> tuple[Any, BaseException | None]:
        async def caught() -> tuple[Any, BaseException | None]:
            try:
                return await call(), None
            except BaseException as error:  # SystemExit too: it would end the loop
                return None, error

        task, is_abandoned = self.loop.create_task(caught()), False
        try:
            while not task.done():
                await asyncio.wait([task], timeout=LOOK_EVERY_S)
                if not task.done() and not is_abandoned and not is_wanted():
                    is_abandoned = True
                    task.cancel()
        finally:
            task.cancel()
        value, error = task.result()
        return value, Abandoned() if is_abandoned and error is not None else error


async def _put_all(stream: AsyncIterator[Any], queue: "asyncio.Queue[Any]") -> None:
    async with aclosing(stream):  # pyright: ignore[reportArgumentType]
        async for outcome in stream:
            await queue.put(outcome)
            if isinstance(outcome, (End, BaseException)):
                break


async def _next_of(queue: "asyncio.Queue[Any]", task: "asyncio.Task[None]") -> Any:
    """Return what comes next, or `_OVER` when the task has ended; raise what the task raised."""
    getting = asyncio.ensure_future(queue.get())
    await asyncio.wait([getting, task], return_when=asyncio.FIRST_COMPLETED)
    if getting.done():
        return getting.result()
    getting.cancel()
    task.result()
    return _OVER
