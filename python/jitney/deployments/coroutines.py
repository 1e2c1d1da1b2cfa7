"""The event loop of a model whose `predict` is `async def`. Only workers of such models load this and `asyncio`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from copy import copy
from typing import Any, Final

from jitney.deployments.model import Abandoned, Ended, is_async

LOOK_EVERY_S: Final = 0.05
"""Seconds between two looks at whether requests still wait for the answers of the coroutines that run."""


class Coroutines:
    """The event loop of a model whose `predict` is `async def`: it runs while the worker waits for a coroutine.

    There is one loop as long as the model lives, so that a client session that the model keeps stays usable.
    """

    def __init__(self) -> None:
        self._loop: Final = asyncio.new_event_loop()
        # For a constructor that makes futures or clients of `asyncio` before the loop runs.
        asyncio.set_event_loop(self._loop)
        self.predict: Callable[..., Awaitable[Any]] | None = None

    def of(self, predict: Callable[..., Awaitable[Any]]) -> "Coroutines":
        """Return the same event loop for another function of the model."""
        other = copy(self)
        other.predict = predict
        return other

    def waiting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that waits for the result of this one; of a plain function, that function."""
        if not is_async(function):
            return function

        def wait(*arguments: Any) -> Any:
            return self._run(function(*arguments))

        return wait

    def one(self, call: Callable[[], Awaitable[Any]], is_wanted: Callable[[], bool]) -> Any:
        """Return what one call returns, or raise what it raises; Abandoned as soon as it is not wanted any more."""
        found: list[Ended] = []
        self.together([call], lambda: [is_wanted()], found.extend)
        [(_, value, error)] = found
        if error is not None:
            raise error
        return value

    def together(
        self,
        calls: Sequence[Callable[[], Awaitable[Any]]],
        wanted: Callable[[], Sequence[bool]],
        ended: Callable[[list[Ended]], None],
    ) -> None:
        """Run these calls at the same time; `ended` gets each of them once, soon after it has ended.

        `wanted` says of each whether a request still waits for it. A call that is not wanted is cancelled.
        """
        self._run(self._together(calls, wanted, ended))

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
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        self._loop.close()

    async def _together(
        self,
        calls: Sequence[Callable[[], Awaitable[Any]]],
        wanted: Callable[[], Sequence[bool]],
        ended: Callable[[list[Ended]], None],
    ) -> None:
        news = asyncio.Event()
        found: list[Ended] = []
        abandoned: set[int] = set()

        async def run(place: int, call: Callable[[], Awaitable[Any]]) -> None:
            try:
                found.append((place, await call(), None))
            except BaseException as error:  # SystemExit too: it would end the loop
                found.append((place, None, Abandoned() if place in abandoned else error))
            news.set()

        tasks = [self._loop.create_task(run(place, call)) for place, call in enumerate(calls)]
        left = len(tasks)
        try:
            while left:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await news.wait()
                news.clear()
                some, found[:] = list(found), []
                left -= len(some)
                if some:
                    ended(some)
                if left:
                    for place, is_wanted in enumerate(wanted()):
                        if not is_wanted and place not in abandoned:
                            abandoned.add(place)
                            tasks[place].cancel()
        finally:
            for task in tasks:
                task.cancel()

    def _run(self, coroutine: Any) -> Any:
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        finally:
            if not task.done():  # another task of the model's raised SystemExit or KeyboardInterrupt
                task.cancel()
                with suppress(BaseException):
                    self._loop.run_until_complete(task)
