"""Steps in a task, for servers without a loop for streams: items join between two steps. No server is imported here."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import parts

Stream = tuple[parts.Writing, asyncio.Queue[str | None]]


class Engine:
    """One task steps for all streams. It starts with the first stream, in the event loop of that stream."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[Stream] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None

    async def generate(self, item: dict[str, Any]) -> AsyncGenerator[str, None]:
        """The parts of one item."""
        self.task = self.task or asyncio.create_task(self.steps())
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        await self.waiting.put((parts.begin(item), queue))
        while (part := await queue.get()) is not None:
            yield part

    async def steps(self) -> None:
        active: list[Stream] = []
        while True:
            while len(active) < parts.MAX_ITEMS and not (active and self.waiting.empty()):
                active.append(await self.waiting.get())
            writings = [writing for writing, _ in active]
            made = await asyncio.to_thread(parts.step, writings) if parts.SLEEPS else parts.step(writings)
            for (writing, queue), part in zip(active, made, strict=True):
                queue.put_nowait(part)
                if not writing.left:
                    queue.put_nowait(None)
            active = [one for one in active if one[0].left]
            await asyncio.sleep(0)  # so that parts leave
