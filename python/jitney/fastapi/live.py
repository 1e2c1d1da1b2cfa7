"""The live page in an application: what its engine does now, and why."""

from collections.abc import Sequence
from itertools import islice

from fastapi import APIRouter, FastAPI
from fastapi.params import Depends
from starlette.requests import Request
from starlette.responses import HTMLResponse, StreamingResponse

from jitney.extension import core
from jitney.fastapi.dependencies import models_of

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page needs nothing from elsewhere, and nothing from elsewhere may run in it."""

_AT_ONCE = 10
"""Events of one stream. The page asks for the next one: a server that ends waits for the ends of all streams."""


def live(app: FastAPI, prefix: str = "", *, dependencies: Sequence[Depends] = ()) -> None:
    """Give an application the page `PREFIX/live`, and `PREFIX/live/events`, which the page reads.

    Both show request ids and errors to every client that reaches them: say with `dependencies` which ones may. They
    need models that `install` runs inside the application; those of a server have their page there.
    """
    router = APIRouter(prefix=prefix, dependencies=dependencies, include_in_schema=False)

    @router.get("/live")
    async def page() -> HTMLResponse:  # pyright: ignore[reportUnusedFunction]
        headers = {"cache-control": "no-store", "content-security-policy": _POLICY}
        return HTMLResponse(core().live_page(), headers=headers)

    @router.get("/live/events")
    async def events(request: Request) -> StreamingResponse:  # pyright: ignore[reportUnusedFunction]
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        events = islice(models_of(request).live_events(), _AT_ONCE)
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    app.include_router(router)
