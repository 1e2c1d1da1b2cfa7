"""FastAPI with micro-batches of pictures that agree on size, steps and guidance: the oldest group first.

`STORY_SIZE` and `STORY_WAIT_S` are the two settings that its author chose (8 and 0.5).
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel

from stories.baselines.batching import Batcher
from stories.pictures import Diffusion, Order

CHUNK = 4096


class Asked(BaseModel):
    prompt: str
    width: int = 512
    height: int = 512
    steps: int = 20
    guidance_scale: float = 7.5

    def order(self) -> Order:
        return Order(self.prompt, self.width, self.height, self.steps, self.guidance_scale)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    size, wait_s = int(os.environ.get("STORY_SIZE", "8")), float(os.environ.get("STORY_WAIT_S", "0.5"))
    app.state.batcher = Batcher(Diffusion().paint, size, wait_s, lambda order: order.group)
    task = asyncio.create_task(app.state.batcher.run())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/text_to_image")
async def plain(asked: Asked) -> Response:
    return Response(await app.state.batcher.ask(asked.order()), media_type="image/png")


@app.post("/text_to_image/stream")
async def streamed(asked: Asked) -> StreamingResponse:
    picture: bytes = await app.state.batcher.ask(asked.order())

    def chunks() -> Iterator[bytes]:
        for at in range(0, len(picture), CHUNK):
            yield picture[at : at + CHUNK]

    return StreamingResponse(chunks(), media_type="image/png")
