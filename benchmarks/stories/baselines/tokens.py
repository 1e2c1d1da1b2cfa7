"""FastAPI in front of a language model: `loop` calls it in the event loop, `batched` waits for 50 items or 100 ms."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from pydantic import BaseModel

from stories import language
from stories.baselines.batching import Batcher

SIZE, WAIT_S = 50, 0.1


class Prompt(BaseModel):
    prompt: str


class Continuation(BaseModel):
    prompt: str
    tokens: list[int]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.model = language.load()
    app.state.batcher = Batcher(app.state.model.generate, SIZE, WAIT_S)
    task = asyncio.create_task(app.state.batcher.run())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)

if os.environ.get("STORY_VARIANT") == "batched":

    @app.post("/generate")
    async def batched(asked: Prompt) -> Continuation:
        return Continuation(prompt=asked.prompt, tokens=await app.state.batcher.ask(asked.prompt))

else:

    @app.post("/generate")
    async def in_the_loop(asked: Prompt) -> Continuation:
        return Continuation(prompt=asked.prompt, tokens=app.state.model.generate([asked.prompt])[0])
