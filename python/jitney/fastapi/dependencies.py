"""What gives a handler its model."""

from collections.abc import Callable
from threading import get_ident
from typing import Any, cast

from fastapi import Depends
from starlette.requests import HTTPConnection

from jitney.deployments.composed.composition import Composed
from jitney.embedded.handles import Models, SyncModels, for_threads
from jitney.embedded.models import LOOP_THREAD, REQUEST_ID, Model
from jitney.errors import NotFound
from jitney.fastapi.errors import request_id_of


def model(key: str | type[Any] | Callable[..., Any] | Composed) -> Any:
    """Return what gives an `async def` handler the model of this name or class, to be awaited.

    It is the default of a parameter, or stands in its `Annotated`; it is a `Depends(…)` already.
    """

    async def find(connection: HTTPConnection) -> Any:
        found = _named(models_of(connection), key)
        return cast("Any", found).for_handlers() if isinstance(found, Model) else found

    return Depends(find)


def sync_model(key: str | type[Any] | Callable[..., Any] | Composed) -> Any:
    """Return what gives a `def` handler the model of this name or class: a call waits for its answer.

    FastAPI runs such a handler on a thread. In an `async def` handler use `model`: a call that waits
    would stop the event loop, and raises RuntimeError instead.
    """

    async def find(connection: HTTPConnection) -> Any:
        return _named(for_threads(models_of(connection)), key)

    return Depends(find)


def _named(models: Models | SyncModels, key: str | type[Any] | Callable[..., Any] | Composed) -> Any:
    """Return the model. A name that the application has wrong is not an error of the client, so its answer is a 500."""
    try:
        return cast("Any", models[key])
    except NotFound as error:
        raise RuntimeError(f"jitney.fastapi.model({key!r}): {error.message}") from None


def models_of(connection: HTTPConnection) -> Models:
    """Return the models of the application's lifespan. From now on calls of this request have its id."""
    # The lifespan's state reaches mounted applications, which have an `app.state` each.
    models: Models | None = getattr(connection.state, "jitney", getattr(connection.app.state, "jitney", None))
    if models is None:
        raise RuntimeError(
            "no models run: call jitney.fastapi.install(app, ...); if you do, the application's lifespan has not "
            "begun: in a test, write `with TestClient(app) as client:`"
        )
    # Each request has its own context, which the thread of a `def` handler gets too.
    REQUEST_ID.set(request_id_of(connection))
    LOOP_THREAD.set(get_ident())
    return models
