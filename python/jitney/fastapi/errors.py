"""Errors of models as answers of an application."""

import inspect
import logging
import math
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any

from fastapi import HTTPException
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request

from jitney.errors import InvalidOutput, JitneyError, ModelFailed, Overloaded, RequestError, Unavailable

_LOG = logging.getLogger("jitney")
_LONGEST_ID = 128
"""Characters of a request id, as jitney's own server has it."""


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


async def answer_error(connection: HTTPConnection, error: Exception) -> Any:
    """Answer as the application answers its own errors: with its handler of JitneyError, or of an HTTPException."""
    if not isinstance(connection, Request) or not isinstance(error, RequestError):
        raise error  # a WebSocket has no statuses
    # Those for 500 and Exception are for errors that nothing else handles; no HTTPException reaches them.
    handlers: Mapping[Any, Any] = {
        key: handler for key, handler in connection.app.exception_handlers.items() if key not in (500, Exception)
    }
    if JitneyError in handlers:
        return await _call(handlers[JitneyError], connection, error)
    answered = http_error(error, request_id_of(connection) or "", show=connection.app.debug)
    handler = next(handlers[key] for key in (answered.status_code, *type(answered).__mro__) if key in handlers)
    return await _call(handler, connection, answered)


def request_id_of(connection: HTTPConnection) -> str | None:
    """Return the id that the client gave, if it may be repeated in headers and logs."""
    given = connection.headers.get("x-request-id", "")
    is_fit = 1 <= len(given) <= _LONGEST_ID and all("!" <= letter <= "~" for letter in given)
    return given if is_fit else None


async def _call(handler: Callable[..., Any], request: Request, error: Exception) -> Any:
    if inspect.iscoroutinefunction(handler):
        return await handler(request, error)
    reply = await run_in_threadpool(handler, request, error)
    return await reply if inspect.isawaitable(reply) else reply
