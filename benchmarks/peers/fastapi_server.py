"""FastAPI with batching written by hand, as tutorials do it: a queue, a task, batches of 64 within 5 ms."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response

MODEL = os.environ["BENCH_MODEL"]
waiting: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()


def predict(items: list[Any]) -> list[Any]:
    if MODEL == "sleepy":
        time.sleep(0.005 + 0.0001 * len(items))
    return items


async def batch() -> None:
    while True:
        taken = [await waiting.get()]
        end = time.monotonic() + 0.005
        while len(taken) < 64 and (left := end - time.monotonic()) > 0:
            try:
                taken.append(await asyncio.wait_for(waiting.get(), left))
            except TimeoutError:
                break
        items = [item for item, _ in taken]
        # A model that computes nothing is called in place; a real one leaves the loop alone.
        answers = await asyncio.to_thread(predict, items) if MODEL == "sleepy" else predict(items)
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
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    await waiting.put((item, future))
    return await future


if MODEL == "raw":

    @app.post("/inference")
    async def raw(request: Request) -> Response:
        return Response(await ask(await request.body()), media_type="application/octet-stream")

else:

    @app.post("/inference")
    async def objects(item: dict[str, str]) -> dict[str, str]:
        return await ask(item)
