"""FastAPI with the diffusion model of `examples/text_to_image`, one picture at a time, plain and streamed.

The module needs the folder of the example in PYTHONPATH.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import diffusion
from fastapi import FastAPI
from fastapi.responses import Response, StreamingResponse
from prompt import Prompt
from pydantic import BaseModel

PREVIEWS = 8


class Wanted(BaseModel):
    prompt: str
    negative_prompt: str = ""
    inference_steps: int = 20
    guidance_scale: float = 3.0
    width: int = 32
    height: int = 32
    seed: int | None = None

    def begin(self) -> Any:
        return diffusion.begin(
            Prompt(
                self.prompt,
                self.negative_prompt,
                self.width,
                self.height,
                self.inference_steps,
                self.guidance_scale,
                self.seed,
            )
        )


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.denoiser, app.state.turn = diffusion.Denoiser(), asyncio.Lock()
    yield


app = FastAPI(lifespan=lifespan)


def file(pixels: Any) -> bytes:
    return diffusion.image(pixels).encode()


@app.post("/image")
async def plain(wanted: Wanted) -> Response:
    picture = wanted.begin()

    def draw() -> bytes:
        while not picture.is_done:
            app.state.denoiser.step([picture])
        return file(picture.pixels)

    async with app.state.turn:
        return Response(await asyncio.to_thread(draw), media_type="image/png")


@app.post("/images/stream")
async def streamed(wanted: Wanted) -> StreamingResponse:
    picture = wanted.begin()
    shows = {wanted.inference_steps * number // (PREVIEWS + 1) for number in range(1, PREVIEWS + 1)}

    def draw_on() -> bytes:
        """Draw until there is something to show."""
        while not picture.is_done:
            app.state.denoiser.step([picture])
            if picture.at in shows:
                return file(picture.clear)
        return file(picture.pixels)

    async def events() -> AsyncIterator[str]:
        async with app.state.turn:
            while not picture.is_done:
                png = await asyncio.to_thread(draw_on)
                data = json.dumps({"image": base64.b64encode(png).decode()})
                yield f"event: {'image' if picture.is_done else 'preview'}\ndata: {data}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
