"""A vector search behind FastAPI: several uvicorn workers share the batches of one MiniLM.

    jitney serve minilm --listen-programs unix:/tmp/models.sock
    uvicorn --app-dir examples/programs search:app --workers 4 --port 8080
    curl -s '127.0.0.1:8080/search?q=Where+do+I+eat+well'

Each uvicorn worker holds the index and answers requests. The model is loaded once, in the jitney server.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

import jitney
import jitney.fastapi
import numpy as np
from fastapi import FastAPI, Request

ADDRESS = os.environ.get("MODELS", "unix:/tmp/models.sock")
PASSAGES = [
    "The night bus leaves the station every half hour until four.",
    "A jitney is a small bus that leaves when it is full.",
    "The restaurant on the corner serves noodles that people queue for.",
    "Bring the dough to room temperature before you shape the loaf.",
    "The museum opens at ten and is free on the first Sunday of the month.",
    "Sea levels follow the moon, twice a day.",
    "She repaired the old radio with a soldering iron and patience.",
    "The council voted to plant two thousand trees along the river.",
]

Embed = Annotated[jitney.Model[str, np.ndarray], jitney.fastapi.model("minilm")]


class Index:
    """Unit vectors and the nearest of them: exact, one matrix product."""

    def __init__(self, passages: list[str], vectors: np.ndarray) -> None:
        self.passages = passages
        self.vectors = vectors

    def nearest(self, vector: np.ndarray, count: int) -> list[tuple[str, float]]:
        scores = self.vectors @ vector
        best = np.argsort(-scores)[:count]
        return [(self.passages[index], round(float(scores[index]), 4)) for index in best]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    embed = app.state.jitney.minilm
    vectors = await asyncio.gather(*(embed(text) for text in PASSAGES))
    app.state.index = Index(PASSAGES, np.stack(vectors))
    yield


app = FastAPI(lifespan=lifespan)
jitney.fastapi.install(app, connect=ADDRESS)


@app.get("/search")
async def search(request: Request, embed: Embed, q: str, count: int = 3) -> list[tuple[str, float]]:
    index: Index = request.app.state.index
    return index.nearest(await embed(q, timeout_s=5), count)
