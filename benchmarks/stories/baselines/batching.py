"""Batching in asyncio, as applications write it: a queue per group, a task, a thread for the model."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any


@dataclass
class Waiting:
    item: Any
    answer: asyncio.Future[Any]
    since: float


class Batcher:
    """The group whose head is oldest goes first; its batch is closed when `size` are there, or after `wait_s`.

    The wait begins when the model is free and the batch is begun, as in a loop that takes one request and then
    collects others. `wait_s=0` is an eager batcher: whatever waits goes at once. The model runs in a thread,
    one batch at a time, and the event loop stays free.
    """

    def __init__(
        self,
        predict: Callable[[list[Any]], list[Any]],
        size: int,
        wait_s: float,
        key: Callable[[Any], Hashable] = lambda _: None,
    ) -> None:
        self._predict, self._size, self._wait_s, self._key = predict, size, wait_s, key
        self._groups: dict[Hashable, deque[Waiting]] = {}
        self._came = asyncio.Event()

    async def ask(self, item: Any) -> Any:
        loop = asyncio.get_running_loop()
        waiting = Waiting(item, loop.create_future(), loop.time())
        self._groups.setdefault(self._key(item), deque()).append(waiting)
        self._came.set()
        return await waiting.answer

    async def run(self) -> None:
        """Form and compute batches until cancelled."""
        while True:
            batch = await self._batch()
            try:
                answers = await asyncio.to_thread(self._predict, [one.item for one in batch])
            except Exception as error:
                for one in batch:
                    if not one.answer.done():
                        one.answer.set_exception(error)
                continue
            for one, answer in zip(batch, answers, strict=True):
                if not one.answer.done():
                    one.answer.set_result(answer)

    async def _batch(self) -> list[Waiting]:
        while not self._groups:
            await self._next()
        group = min(self._groups, key=lambda key: self._groups[key][0].since)
        queue, loop = self._groups[group], asyncio.get_running_loop()
        end = loop.time() + self._wait_s
        while len(queue) < self._size and (left := end - loop.time()) > 0:
            try:
                await asyncio.wait_for(self._next(), left)
            except TimeoutError:
                break
        batch = [queue.popleft() for _ in range(min(self._size, len(queue)))]
        if not queue:
            del self._groups[group]
        return batch

    async def _next(self) -> None:
        self._came.clear()
        await self._came.wait()
