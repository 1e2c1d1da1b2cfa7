"""Models that live as long as an application does."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from jitney.embedded.connect import connect as connect_to
from jitney.embedded.run import Target, run
from jitney.errors import RequestError
from jitney.fastapi.errors import answer_error

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Mapping[str, Any]]]


def install(  # noqa: PLR0913 -- what an application gives, each on its own
    app: FastAPI,
    *targets: Target,
    connect: str | None = None,
    key: str | None = None,
    options: Mapping[str, object] | None = None,
    log_level: str = "warn",
    ray_address: str | None = None,
) -> None:
    """Give an application models: with `targets` an engine inside each process, with `connect` a server's.

    The models start before the application's own lifespan, and are in `app.state.jitney` while it lasts. A RequestError
    that a handler does not catch becomes the answer that `http_error` describes, in mounted applications too, unless
    the application has its own exception handler for it. Call this before the application serves. `ray_address` is as
    in `jitney.run`.
    """
    models = lifespan(*targets, connect=connect, key=key, options=options, log_level=log_level, ray_address=ray_address)
    if app.middleware_stack is not None:
        raise RuntimeError("this application serves already: call jitney.fastapi.install before its first request")
    own = app.router.lifespan_context

    @asynccontextmanager
    async def both(app: FastAPI) -> AsyncGenerator[Mapping[str, Any]]:
        for mounted in _mounted(app.routes):  # they have been mounted by now, and have not served yet
            mounted.exception_handlers.setdefault(RequestError, answer_error)
        async with models(app) as state, own(app) as more:
            yield {**state, **(more or {})}

    app.exception_handlers.setdefault(RequestError, answer_error)
    app.router.lifespan_context = both


def lifespan(
    *targets: Target,
    connect: str | None = None,
    key: str | None = None,
    options: Mapping[str, object] | None = None,
    log_level: str = "warn",
    ray_address: str | None = None,
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
            engine = run(*targets, options=options, log_level=log_level, ray_address=ray_address)
        else:
            engine = connect_to(connect, key=key)
        async with engine as models:
            app.state.jitney = models
            try:
                yield {"jitney": models}
            finally:
                del app.state.jitney

    return run_models


def _mounted(routes: Iterable[BaseRoute]) -> list[Starlette]:
    """Return all applications behind these routes: `app.mount`, `app.host`, and those in a mounted list of routes."""
    found: list[Starlette] = []
    for route in routes:
        inner = getattr(route, "app", None)
        found += [inner] if isinstance(inner, Starlette) else []
        found += _mounted(getattr(route, "routes", None) or ())
    return found
