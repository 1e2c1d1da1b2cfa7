"""FastAPI without a serving library, three ways.

naive: the model is called in the event loop. threads: in FastAPI's thread pool (plain `def`,
https://fastapi.tiangolo.com/async/). batched: as tutorials do it: a queue, a task, batches within a wait.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import models
from fastapi import FastAPI, Request, Response

VARIANT = models.SETTINGS.get("variant", "batched")
WAIT_S = models.SETTINGS.get("wait_ms", 5) / 1000
waiting: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()
model = models.load()


async def batch() -> None:
    while True:
        taken = [await waiting.get()]
        end = time.monotonic() + WAIT_S
        while len(taken) < models.MAX_BATCH_SIZE and (left := end - time.monotonic()) > 0:
            try:
                taken.append(await asyncio.wait_for(waiting.get(), left))
            except TimeoutError:
                break
        items = [item for item, _ in taken]
        # A model that computes nothing is called in place; a real one leaves the loop alone.
        answers = await asyncio.to_thread(model, items) if models.COMPUTES else model(items)
        for (_, future), answer in zip(taken, answers, strict=True):
            if not future.done():
                future.set_result(answer)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    task = asyncio.create_task(batch())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


async def ask(item: Any) -> Any:
    if VARIANT == "naive":
        return model([item])[0]
    if VARIANT == "threads":
        return (await asyncio.to_thread(model, [item]))[0]
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    await waiting.put((item, future))
    return await future


if models.MODEL == "bytes":

    @app.post("/inference")
    async def raw(request: Request) -> Response:
        return Response(await ask(await request.body()), media_type="application/octet-stream")

elif VARIANT == "threads":

    @app.post("/inference")
    def blocking(item: dict[str, str]) -> Any:
        return model([item])[0]

else:

    @app.post("/inference")
    async def objects(item: dict[str, str]) -> Any:
        return await ask(item)
