"""jitney in a FastAPI application: a lifespan, a dependency, errors as answers. Nothing else of jitney imports this.

```python
app = FastAPI(lifespan=jitney.fastapi.lifespan("embedder.py"))
Embed = Annotated[jitney.Model[str, np.ndarray], jitney.fastapi.model("embedder")]

@app.get("/vector")
async def vector(text: str, embed: Embed) -> list[float]:
    return (await embed(text)).tolist()
```
"""

import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import Depends, HTTPException
from starlette.requests import HTTPConnection

from jitney.errors import Overloaded, RequestError, Unavailable
from jitney.program.connecting import connect as connected
from jitney.program.models import Models
from jitney.program.running import Target, run

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["http_error", "lifespan", "model"]


def lifespan(
    *targets: Target,
    connect: str | None = None,
    key: str | None = None,
    options: Mapping[str, object] | None = None,
    log_level: str = "warn",
) -> "Callable[[FastAPI], AbstractAsyncContextManager[None]]":
    """Return a lifespan: with `targets` an engine inside each process, with `connect` the shared one at that place.

    The models are in `app.state.jitney` while it lasts. An application with things of its own to start enters this
    from its own lifespan: `async with jitney.fastapi.lifespan("embedder.py")(app): ...`.
    """
    if (connect is None) == (not targets):
        raise TypeError("lifespan takes either targets to run or connect=, the place of a server")

    @asynccontextmanager
    async def run_models(app: "FastAPI") -> AsyncGenerator[None]:
        # Made anew each time: test clients and reloads start an application more than once.
        if connect is None:
            entered = run(*targets, options=options, log_level=log_level)
        else:
            entered = connected(connect, key=key)
        async with entered as models:
            app.state.jitney = models
            try:
                yield
            finally:
                del app.state.jitney

    return run_models


def model(key: str | type[Any] | Callable[..., Any]) -> Any:
    """Return the dependency that gives a handler the model of this name or class.

    A RequestError that the handler does not catch becomes the answer that its outcome has over HTTP: see `http_error`.
    """

    async def found(connection: HTTPConnection) -> AsyncGenerator[Any]:
        models: Models | None = getattr(connection.app.state, "jitney", None)
        if models is None:
            raise RuntimeError("no models run: give the application lifespan=jitney.fastapi.lifespan(...)")
        try:
            yield models[key]
        except RequestError as error:
            raise http_error(error) from error

    return Depends(found)


def http_error(error: RequestError) -> HTTPException:
    """Return what FastAPI answers for this error: its status, its words, and when to come back."""
    headers = {"x-jitney-reason": error.reason}
    if isinstance(error, (Overloaded, Unavailable)) and error.retry_after_s is not None and error.retry_after_s >= 1:
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
    elif isinstance(error, Unavailable):
        headers["retry-after"] = "1"
    return HTTPException(error.http_status, error.message, headers)
