"""jitney in a FastAPI application: a lifespan, a dependency, errors as answers. Nothing else of jitney imports this.

```python
app = FastAPI(lifespan=jitney.fastapi.lifespan("embedder.py"))
Embed = Annotated[jitney.Model[str, np.ndarray], jitney.fastapi.model("embedder")]

@app.get("/vector")
async def vector(text: str, embed: Embed) -> list[float]:
    return (await embed(text)).tolist()
```
"""

import inspect
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from fastapi import Depends, HTTPException
from starlette.concurrency import run_in_threadpool
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import HTTPConnection, Request

from jitney.errors import JitneyError, Overloaded, RequestError, Unavailable
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

    A RequestError that a handler does not catch becomes the answer that its outcome has over HTTP, see `http_error`,
    unless the application has an exception handler of its own for it.
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
        _answer_errors(app)
        async with entered as models:
            app.state.jitney = models
            try:
                yield
            finally:
                del app.state.jitney

    return run_models


def model(key: str | type[Any] | Callable[..., Any]) -> Any:
    """Return what gives a handler the model of this name or class: the default of its parameter, or in its `Annotated`.

    It is a `Depends(…)` already.
    """

    async def found(connection: HTTPConnection) -> Any:
        models: Models | None = getattr(connection.app.state, "jitney", None)
        if models is None:
            raise RuntimeError("no models run: give the application lifespan=jitney.fastapi.lifespan(...)")
        return cast("Any", models[key])

    return Depends(found)


def http_error(error: RequestError) -> HTTPException:
    """Return what FastAPI answers for this error: its status, its words, and when to come back."""
    headers = {"x-jitney-reason": error.reason}
    if isinstance(error, (Overloaded, Unavailable)) and error.retry_after_s is not None and error.retry_after_s >= 1:
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
    elif isinstance(error, Unavailable):
        headers["retry-after"] = "1"
    return HTTPException(error.http_status, error.message, headers)


def _answer_errors(app: "FastAPI") -> None:
    """Install the handler of RequestError, unless the application has one."""
    if RequestError in app.exception_handlers or JitneyError in app.exception_handlers:
        return
    app.add_exception_handler(RequestError, _answer)
    # A lifespan runs inside the stack of middleware: that was built before, from the handlers that there were then.
    layer: Any = app.middleware_stack
    while layer is not None and not isinstance(layer, ExceptionMiddleware):
        layer = getattr(layer, "app", None)
    if layer is None:
        app.middleware_stack = None  # the next request builds it anew
    else:
        layer.add_exception_handler(RequestError, _answer)


async def _answer(connection: HTTPConnection, error: Exception) -> Any:
    """Answer as the application answers an HTTPException, which it may do in a form of its own."""
    if not isinstance(connection, Request) or not isinstance(error, RequestError):
        raise error  # a WebSocket has no statuses
    answered = http_error(error)
    # Those for 500 and Exception are for what nobody has foreseen; no HTTPException reaches them.
    handlers: Mapping[Any, Any] = {
        key: handler for key, handler in connection.app.exception_handlers.items() if key not in (500, Exception)
    }
    handler = next(handlers[key] for key in (answered.status_code, *type(answered).__mro__) if key in handlers)
    if inspect.iscoroutinefunction(handler):
        return await handler(connection, answered)
    reply = await run_in_threadpool(handler, connection, answered)
    return await reply if inspect.isawaitable(reply) else reply
