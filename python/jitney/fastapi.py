"""jitney in a FastAPI application: models that live as long as it does, a dependency, errors as answers.

```python
app = FastAPI()
jitney.fastapi.install(app, "embedder.py")
Embed = Annotated[jitney.Model[str, np.ndarray], jitney.fastapi.model("embedder")]

@app.get("/vector")
async def vector(text: str, embed: Embed) -> list[float]:
    return (await embed(text)).tolist()
```

Runs in the user's program. No other module of jitney imports FastAPI.
"""

import inspect
import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from secrets import token_hex
from typing import Any, cast

from fastapi import Depends, FastAPI, HTTPException
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.routing import Mount

from jitney.embedded.connect import connect as connect_to
from jitney.embedded.handles import Models
from jitney.embedded.models import REQUEST_ID
from jitney.embedded.run import Target, run
from jitney.errors import InvalidOutput, JitneyError, ModelFailed, Overloaded, RequestError, Unavailable

_LOG = logging.getLogger("jitney")
_LONGEST_ID = 128
"""Characters of a request id, as jitney's own server has it."""

__all__ = ["http_error", "install", "lifespan", "model"]

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Mapping[str, Any]]]


def install(
    app: FastAPI,
    *targets: Target,
    connect: str | None = None,
    key: str | None = None,
    options: Mapping[str, object] | None = None,
    log_level: str = "warn",
) -> None:
    """Give an application models: with `targets` an engine inside each process, with `connect` a server's.

    The models start before the application's own lifespan, and are in `app.state.jitney` while it lasts. A RequestError
    that a handler does not catch becomes the answer that `http_error` describes, in mounted applications too, unless
    the application has its own exception handler for it. Call this before the application serves.
    """
    models = lifespan(*targets, connect=connect, key=key, options=options, log_level=log_level)
    own = app.router.lifespan_context

    @asynccontextmanager
    async def both(app: FastAPI) -> AsyncGenerator[Mapping[str, Any]]:
        for mounted in _mounted(app):  # they have been mounted by now, and have not served yet
            mounted.exception_handlers.setdefault(RequestError, _answer)
        async with models(app) as state, own(app) as more:
            yield {**state, **(more or {})}

    app.exception_handlers.setdefault(RequestError, _answer)
    app.router.lifespan_context = both


def lifespan(
    *targets: Target,
    connect: str | None = None,
    key: str | None = None,
    options: Mapping[str, object] | None = None,
    log_level: str = "warn",
) -> Lifespan:
    """Return a lifespan that runs the models and nothing else: errors are not answered, see `install`.

    It yields the state in which `model` finds them. A lifespan that enters this one yields that state as well.
    """
    if (connect is None) == (not targets):
        raise TypeError("give either targets to run, or connect= with the address of a server")

    @asynccontextmanager
    async def run_models(app: FastAPI) -> AsyncGenerator[Mapping[str, Any]]:
        # A new engine each time: test clients and reloads start an application more than once.
        if connect is None:
            engine = run(*targets, options=options, log_level=log_level)
        else:
            engine = connect_to(connect, key=key)
        async with engine as models:
            app.state.jitney = models
            try:
                yield {"jitney": models}
            finally:
                del app.state.jitney

    return run_models


def model(key: str | type[Any] | Callable[..., Any]) -> Any:
    """Return what gives a handler the model of this name or class: the default of its parameter, or in its `Annotated`.

    It is a `Depends(…)` already.
    """

    async def find(connection: HTTPConnection) -> Any:
        # The lifespan's state reaches mounted applications, which have an `app.state` each.
        models: Models | None = getattr(connection.state, "jitney", getattr(connection.app.state, "jitney", None))
        if models is None:
            raise RuntimeError(
                "no models run: call jitney.fastapi.install(app, ...); if you do, the application's lifespan has not "
                "begun: in a test, write `with TestClient(app) as client:`"
            )
        # Each request has its own context: what its handler calls has its id.
        REQUEST_ID.set(_request_id(connection))
        return cast("Any", models[key])

    return Depends(find)


def http_error(error: RequestError, request_id: str = "", *, show: bool = False) -> HTTPException:
    """Return what FastAPI answers for this error: its status, its words, and when to come back.

    What a model's exception says may hold paths, queries and inputs of others. It goes to the log (`logging`, "jitney")
    next to the id of the request, and the client gets the id; with `show` the client gets the words too.
    """
    request_id = request_id or error.request_id or token_hex(8)
    detail, headers = error.message, {"x-jitney-reason": error.reason, "x-request-id": request_id}
    if isinstance(error, (ModelFailed, InvalidOutput)):
        # The worker's log has the id of the call, which is another one if the handler named one.
        call = f" (call {error.request_id})" if error.request_id not in (None, request_id) else ""
        _LOG.error("request %s%s: %s: %s", request_id, call, error.reason, error.message)
        if not show:
            detail = f"the model failed on this input; the log says why, next to the request id {request_id}"
    if isinstance(error, (Overloaded, Unavailable)) and error.retry_after_s is not None and error.retry_after_s >= 1:
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
    elif isinstance(error, Unavailable):
        headers["retry-after"] = "1"
    return HTTPException(error.http_status, detail, headers)


def _mounted(app: Starlette) -> list[Starlette]:
    """Return all applications that are mounted in this one."""
    inner = [route.app for route in app.routes if isinstance(route, Mount) and isinstance(route.app, Starlette)]
    return [*inner, *(deeper for mounted in inner for deeper in _mounted(mounted))]


async def _answer(connection: HTTPConnection, error: Exception) -> Any:
    """Answer as the application answers its own errors: with its handler of JitneyError, or of an HTTPException."""
    if not isinstance(connection, Request) or not isinstance(error, RequestError):
        raise error  # a WebSocket has no statuses
    # Those for 500 and Exception are for errors that nothing else handles; no HTTPException reaches them.
    handlers: Mapping[Any, Any] = {
        key: handler for key, handler in connection.app.exception_handlers.items() if key not in (500, Exception)
    }
    if JitneyError in handlers:
        return await _call(handlers[JitneyError], connection, error)
    answered = http_error(error, _request_id(connection) or "", show=connection.app.debug)
    handler = next(handlers[key] for key in (answered.status_code, *type(answered).__mro__) if key in handlers)
    return await _call(handler, connection, answered)


def _request_id(connection: HTTPConnection) -> str | None:
    """Return the id that the client gave, if it may be repeated in headers and logs."""
    given = connection.headers.get("x-request-id", "")
    is_fit = 1 <= len(given) <= _LONGEST_ID and all("!" <= letter <= "~" for letter in given)
    return given if is_fit else None


async def _call(handler: Callable[..., Any], request: Request, error: Exception) -> Any:
    if inspect.iscoroutinefunction(handler):
        return await handler(request, error)
    reply = await run_in_threadpool(handler, request, error)
    return await reply if inspect.isawaitable(reply) else reply
