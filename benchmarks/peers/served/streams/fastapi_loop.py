"""FastAPI without a serving library: a task that steps, and a queue for each stream. Items join between two steps."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import parts
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

Stream = tuple[parts.Writing, asyncio.Queue[str | None]]
waiting: asyncio.Queue[Stream] = asyncio.Queue()


async def steps() -> None:
    active: list[Stream] = []
    while True:
        while len(active) < parts.MAX_ITEMS and not (active and waiting.empty()):
            active.append(await waiting.get())
        writings = [writing for writing, _ in active]
        made = await asyncio.to_thread(parts.step, writings) if parts.SLEEPS else parts.step(writings)
        for (writing, queue), part in zip(active, made, strict=True):
            queue.put_nowait(part)
            if not writing.left:
                queue.put_nowait(None)
        active = [one for one in active if one[0].left]
        await asyncio.sleep(0)  # so that parts leave


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    task = asyncio.create_task(steps())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/inference")
async def inference(item: dict[str, Any]) -> StreamingResponse:
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    await waiting.put((parts.begin(item), queue))

    async def events() -> AsyncIterator[str]:
        while (part := await queue.get()) is not None:
            yield parts.event(part)
        yield parts.END

    return StreamingResponse(events(), media_type=parts.EVENTS)
