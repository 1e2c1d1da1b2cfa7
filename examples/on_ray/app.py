"""A FastAPI application whose model runs in a Ray cluster.

RAY_CLUSTER=auto uvicorn --app-dir examples/on_ray app:app
"""

import os
from pathlib import Path
from typing import Annotated, Any

import jitney
import jitney.fastapi
from fastapi import FastAPI

app = FastAPI()
here = Path(__file__).parent
jitney.fastapi.install(app, str(here / "model.py"), ray_address=os.environ.get("RAY_CLUSTER", "auto"))
Words = Annotated[jitney.Model[str, dict[str, Any]], jitney.fastapi.model("words")]


@app.get("/count")
async def count(text: str, words: Words) -> dict[str, Any]:
    return await words(text, timeout_s=30)
