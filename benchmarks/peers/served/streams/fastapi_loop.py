"""FastAPI without a serving library: a task that steps, and a queue for each stream."""

from collections.abc import AsyncIterator
from typing import Any

import parts
from engine import Engine
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

app = FastAPI()
engine = Engine()


@app.post("/inference")
async def inference(item: dict[str, Any]) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        async for part in engine.generate(item):
            yield parts.event(part)
        yield parts.END

    return StreamingResponse(events(), media_type=parts.EVENTS)
