"""FastAPI before an accelerator: one at a time, batches after a fixed wait, or whatever waits when it is free."""

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from fastapi import FastAPI
from pydantic import BaseModel

from stories.accelerator import Accelerator
from stories.baselines.batching import Batcher
from stories.steady import BASE_S, ITEM_S, SIZE, WAIT_MS

VARIANT = os.environ.get("STORY_VARIANT", "unbatched")
accelerator = Accelerator(BASE_S, ITEM_S)


class Text(BaseModel):
    text: str


def predict(texts: list[Text]) -> list[Text]:
    accelerator.run(len(texts))
    return [Text(text=one.text.upper()) for one in texts]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.batcher = Batcher(predict, SIZE, WAIT_MS / 1e3 if VARIANT == "wait" else 0)
    task = asyncio.create_task(app.state.batcher.run())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)

if VARIANT == "unbatched":
    threads = ThreadPoolExecutor(64)

    @app.post("/upper")
    async def alone(text: Text) -> Text:  # the accelerator has its own queue, and is never without work
        return (await asyncio.get_running_loop().run_in_executor(threads, predict, [text]))[0]

else:

    @app.post("/upper")
    async def batched(text: Text) -> Text:
        return await app.state.batcher.ask(text)
