"""Text to image as an application of FastAPI, with a page that shows how a picture appears.

    uvicorn --app-dir examples/text_to_image app:app
    curl -s 127.0.0.1:8000/image -o image.png -H 'content-type: application/json' -d '{"prompt": "a red cross on blue"}'

Open http://127.0.0.1:8000 in a browser for the page. Needs fastapi, uvicorn, onnxruntime and pillow.

All endpoints share one model: pictures of all clients are drawn in the same steps. A request for `n` pictures is `n`
items, with the seeds `seed`, `seed + 1` and so on. When a client leaves, its pictures are not drawn to the end.
"""

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import jitney
import jitney.fastapi
from fastapi import FastAPI
from fastapi.responses import FileResponse, Response, StreamingResponse
from prompt import Prompt
from pydantic import BaseModel, Field
from steps import TextToImage

app = FastAPI(title="Text to image")
jitney.fastapi.install(app, TextToImage)
Images = Annotated[
    jitney.StreamModel[Prompt, jitney.Image, jitney.Image],
    jitney.fastapi.model(TextToImage),
]
SyncImages = Annotated[
    jitney.SyncStreamModel[Prompt, jitney.Image, jitney.Image],
    jitney.fastapi.sync_model(TextToImage),
]
PREVIEWS = 8
EVENTS = "text/event-stream"


class Wanted(BaseModel):
    """What a client asks for."""

    prompt: str
    negative_prompt: str = ""
    inference_steps: int = Field(20, ge=1, le=200)
    guidance_scale: float = Field(3.0, ge=0, le=20)
    width: int = 32
    height: int = 32
    n: int = Field(1, ge=1, le=16)
    seed: int | None = Field(None, ge=0, lt=2**53)

    def prompts(self, partial_images: int = 0) -> list[Prompt]:
        """Return an item for each picture."""
        first = secrets.randbits(32) if self.seed is None else self.seed
        return [
            Prompt(
                self.prompt,
                negative_prompt=self.negative_prompt,
                width=self.width,
                height=self.height,
                steps=self.inference_steps,
                guidance_scale=self.guidance_scale,
                seed=first + index,
                partial_images=partial_images,
            )
            for index in range(self.n)
        ]


class Drawn(BaseModel):
    """Pictures as base64 of PNG files, with their seeds."""

    images: list[str]
    seeds: list[int]


@app.get("/", include_in_schema=False)
async def page() -> FileResponse:
    return FileResponse(Path(__file__).with_name("page.html"))


@app.post("/image", response_class=Response)
async def image(wanted: Wanted, images: Images) -> Response:
    """Draw one picture: the answer is the file."""
    return jitney.fastapi.response(await images(wanted.prompts()[0]))


@app.post("/images")
async def draw(wanted: Wanted, images: Images) -> Drawn:
    """Draw `n` pictures."""
    prompts = wanted.prompts()
    return drawn(prompts, await images.many(prompts))


@app.post("/images/sync")
def draw_sync(wanted: Wanted, images: SyncImages) -> Drawn:
    """Draw `n` pictures, on a thread that waits for them."""
    prompts = wanted.prompts()
    return drawn(prompts, images.many(prompts))


@app.post("/images/stream", response_class=StreamingResponse)
async def stream(wanted: Wanted, images: Images) -> StreamingResponse:
    """Draw `n` pictures, with previews of all of them."""
    prompts = wanted.prompts(PREVIEWS)
    # With `begin` a request that is refused gets its status, and not a stream.
    streams = await asyncio.gather(*(images.stream(prompt).begin() for prompt in prompts))
    return StreamingResponse(events(prompts, streams), media_type=EVENTS)


@app.post("/images/sync/stream", response_class=StreamingResponse)
def stream_sync(wanted: Wanted, images: SyncImages) -> StreamingResponse:
    """Draw `n` pictures, with previews of each after the other, on a thread that waits for them."""
    prompts = wanted.prompts(PREVIEWS)
    streams = [images.stream(prompt).begin() for prompt in prompts]
    return StreamingResponse(sync_events(prompts, streams), media_type=EVENTS)


def drawn(prompts: list[Prompt], images: list[jitney.Image]) -> Drawn:
    return Drawn(images=[encoded(each) for each in images], seeds=[prompt.seed or 0 for prompt in prompts])


async def events(prompts: list[Prompt], streams: list[jitney.Parts[jitney.Image]]) -> AsyncIterator[str]:
    """Yield the previews and pictures of all prompts when they are made."""
    ready: asyncio.Queue[str | None] = asyncio.Queue()

    async def follow(index: int) -> None:
        try:
            async with streams[index] as parts:
                async for part in parts:
                    ready.put_nowait(event("preview", index, prompts[index], part))
            ready.put_nowait(event("image", index, prompts[index], parts.end.answer))
        except jitney.RequestError as error:
            ready.put_nowait(failure(index, error))
        finally:
            ready.put_nowait(None)

    tasks = [asyncio.create_task(follow(index)) for index in range(len(prompts))]
    left = len(tasks)
    try:
        while left:
            said = await ready.get()
            left -= said is None
            if said is not None:
                yield said
    finally:
        for task in tasks:
            task.cancel()  # the client has left: the model stops drawing for it


def sync_events(prompts: list[Prompt], streams: list[jitney.SyncParts[jitney.Image]]) -> Iterator[str]:
    """Yield the previews and the picture of each prompt."""
    for index, (prompt, parts) in enumerate(zip(prompts, streams, strict=True)):
        try:
            with parts:
                for part in parts:
                    yield event("preview", index, prompt, part)
            yield event("image", index, prompt, parts.end.answer)
        except jitney.RequestError as error:
            yield failure(index, error)


def encoded(image: jitney.Image) -> str:
    return base64.b64encode(image.encode()).decode()


def event(name: str, index: int, prompt: Prompt, image: Any) -> str:
    data = {"index": index, "seed": prompt.seed, "image": encoded(image)}
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def failure(index: int, error: jitney.RequestError) -> str:
    return f"event: error\ndata: {json.dumps({'index': index, 'reason': error.reason, 'detail': str(error)})}\n\n"
