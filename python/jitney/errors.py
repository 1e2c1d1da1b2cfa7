"""The exceptions that jitney raises, and that users return or raise for one item.

```
JitneyError
├─ ConfigError                 an option, a layer of options or a constructor argument is wrong
├─ TargetError                 what was to be served cannot be found, imported or understood
├─ EngineFailed                the engine inside this process died (promise 9)
├─ OutOfMemory                 raise it from `predict`: a smaller batch may do
├─ WorkerBroken                raise it from `predict`: this worker can compute nothing any more
└─ RequestError                how one request ended, when it did not end well; has `reason`
   ├─ InvalidRequest           the request itself is wrong: its deadline, its priority
   ├─ InvalidInput             the input is not what the deployment takes
   │  └─ MalformedBody         it cannot even be parsed
   ├─ NotFound                 no deployment of this name
   ├─ TooLarge                 above a limit of size
   ├─ Overloaded               refused at the door; has `retry_after_s`
   │  ├─ QueueFull             … as many items wait as may wait
   │  ├─ QueueBytesFull        … as many bytes wait as may wait
   │  ├─ WaitTooLong           … the predicted wait is too long
   │  ├─ WouldBeLate           … the answer would miss the latency target
   │  └─ TooManyLanes          … too many different group keys wait
   ├─ DeadlineExceeded         the deadline passed
   │  └─ DeadlineUnreachable   … or would pass before the answer can be there
   ├─ Cancelled                the caller went away
   ├─ TooSlow                  the caller read an answer in parts too slowly
   ├─ Unavailable              nobody is there to answer; has `retry_after_s`
   │  ├─ Loading               … yet
   │  ├─ ScaledToZero          … no replica is loaded
   │  ├─ CrashLooping          … the workers keep crashing
   │  ├─ Draining              … any more
   │  └─ Disconnected          … that this program can reach
   ├─ ModelFailed              `predict` raised
   ├─ InvalidOutput            `predict` returned what cannot be an answer
   ├─ WorkerLost               the worker died or hung with this item
   │  └─ Quarantined           … a moment ago, and the item is refused for a while
   └─ InternalError            the server itself failed
```
"""

import math
from functools import cache
from typing import ClassVar

from jitney.extension import core


@cache
def _statuses() -> dict[str, int]:
    return {reason: status for reason, _, status, *_ in core().outcomes()}  # the table lives in Rust


class JitneyError(Exception):
    """Everything that jitney raises on purpose."""


class ConfigError(JitneyError):
    """An option, a layer of options or a constructor argument is wrong; the message names layer, key and value."""


class TargetError(JitneyError):
    """A target cannot be served. `__cause__` holds the user's own error, if their code raised one."""


class EngineFailed(JitneyError):
    """The engine in this process died; nothing can be answered any more."""


class OutOfMemory(JitneyError):
    """Raise it from `predict` when a batch is too large for the memory of the device: it is halved and tried again.

    What torch, onnxruntime and Python itself raise for want of memory is known; this is for models with another word.
    """


class WorkerBroken(JitneyError):
    """Raise it from `predict` when this worker can compute nothing any more: the worker is replaced.

    The items of its batch are computed again by other workers, unless the deployment says retry=False. CUDA errors
    that no later call survives, such as a device-side assert, are known; this is for what else a model depends on.
    """


class RequestError(JitneyError):
    """How one request ended when it was not answered with a result."""

    reason: ClassVar[str] = "internal"
    """The stable name in the table of outcomes."""
    asked: str | None = None
    """The deployment that a model called with `jitney.uses`, and that failed; None of all other failures."""
    request_id: str | None = None
    """The id of the call that failed, next to which the log has the traceback; None if it did not reach the engine."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    @property
    def http_status(self) -> int:
        """The status that this outcome has over HTTP: the author's own, or that of the table of outcomes."""
        status: int | None = getattr(self, "status", None)
        return _statuses()[self.reason] if status is None else status


class InvalidRequest(RequestError):
    """The request itself is wrong, for instance its deadline or its priority."""

    reason = "invalid_request"


class InvalidInput(RequestError):
    """One item's input is wrong. Return it from `predict` at that item's index, or raise it.

    `status` is the HTTP status, 400 to 499. `field` says where, as in "$.width".
    """

    reason = "invalid_input"

    def __init__(self, message: str, *, status: int = 422, field: str | None = None) -> None:
        if not 400 <= status <= 499:
            raise ValueError(f"an invalid input has a status of 400 to 499, not {status}")
        super().__init__(message)
        self.status = status
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        return (_invalid_input, (type(self), self.message, self.status, self.field))


def _invalid_input(kind: type[InvalidInput], message: str, status: int, field: str | None) -> InvalidInput:
    return kind(message, status=status, field=field)


class MalformedBody(InvalidInput):
    """The item's bytes are not what their media type says: broken JSON, broken msgpack, broken base64."""

    reason = "malformed_body"

    def __init__(self, message: str, *, status: int = 400, field: str | None = None) -> None:
        super().__init__(message, status=status, field=field)


class NotFound(RequestError):
    """No deployment of this name."""

    reason = "not_found"


class TooLarge(RequestError):
    """The request or an item is above a limit of size."""

    reason = "too_large"


class Overloaded(RequestError):
    """Refused at admission, because waiting would not have helped. Try again after `retry_after_s` seconds."""

    reason = "queue_full"

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = _seconds(retry_after_s)


def _seconds(retry_after_s: float | None) -> float | None:
    if retry_after_s is not None and not math.isfinite(retry_after_s):
        raise ValueError(f"retry_after_s is a number of seconds, not {retry_after_s!r}")
    # A caller that computes it from a clock may be a moment late.
    return None if retry_after_s is None else max(0.0, retry_after_s)


class QueueFull(Overloaded):
    """As many items wait as may wait."""


class QueueBytesFull(Overloaded):
    """As many bytes wait as may wait."""

    reason = "queue_bytes_full"


class WaitTooLong(Overloaded):
    """The predicted wait is longer than a request may wait."""

    reason = "wait_too_long"


class WouldBeLate(Overloaded):
    """The answer would be later than the deployment's latency target."""

    reason = "would_be_late"


class TooManyLanes(Overloaded):
    """Too many different group keys wait."""

    reason = "too_many_lanes"


class DeadlineExceeded(RequestError):
    """The deadline passed before the answer was there."""

    reason = "deadline_exceeded"


class DeadlineUnreachable(DeadlineExceeded):
    """The deadline would pass before the answer can be there, so nothing was computed."""

    reason = "deadline_unreachable"


class Cancelled(RequestError):
    """The caller went away."""

    reason = "cancelled"


class TooSlow(RequestError):
    """The caller read an answer in parts too slowly."""

    reason = "too_slow"


class Unavailable(RequestError):
    """The model cannot answer now. Raise it from `predict`, or return it, if what the model needs is not reachable.

    Clients are asked to try again after `retry_after_s` seconds, if it is given.
    """

    reason = "unavailable"

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = _seconds(retry_after_s)


class Loading(Unavailable):
    """The model has not been loaded yet."""

    reason = "loading"


class ScaledToZero(Unavailable):
    """The deployment has no replica now, and the deadline passes before one is loaded."""

    reason = "scaled_to_zero"


class CrashLooping(Unavailable):
    """Every worker of the deployment keeps dying."""

    reason = "crash_looping"


class Draining(Unavailable):
    """The server is shutting down and takes nothing new."""

    reason = "draining"


class Disconnected(Unavailable):
    """The server behind `jitney.connect` cannot be reached, or was lost with this call."""

    reason = "disconnected"


class ModelFailed(RequestError):
    """`predict` raised for this item."""

    reason = "model_failed"
    status: ClassVar[int] = 500
    field: ClassVar[str | None] = None


class InvalidOutput(RequestError):
    """`predict` returned something that cannot be an answer for its batch; the message names expected and got."""

    reason = "invalid_output"


class WorkerLost(RequestError):
    """The worker died or hung while it computed this item, and the item may not be tried again."""

    reason = "worker_lost"


class Quarantined(WorkerLost):
    """The input killed a worker a moment ago and is refused for a while."""

    reason = "quarantined"


class InternalError(RequestError):
    """The server itself failed."""

    reason = "internal"


PROTOCOL_ONLY = frozenset(
    {
        "unauthorized",
        "method_not_allowed",
        "not_acceptable",
        "body_timeout",
        "unsupported_media_type",
        "foreign_host",
    }
)
"""Outcomes that only a network protocol can have: an `await model(x)` never sees them."""

NOT_NOW = (Overloaded, Unavailable, DeadlineExceeded)
"""What says nothing against an input: `predict` may raise it, its own or that of another model that it calls."""


def was_asked(error: BaseException) -> bool:
    """Whether another deployment failed that a model called with `jitney.uses`."""
    return isinstance(error, RequestError) and error.asked is not None


BY_REASON: dict[str, type[RequestError]] = {
    kind.reason: kind
    for kind in (
        InvalidRequest,
        InvalidInput,
        MalformedBody,
        NotFound,
        TooLarge,
        QueueFull,
        QueueBytesFull,
        WaitTooLong,
        WouldBeLate,
        TooManyLanes,
        DeadlineExceeded,
        DeadlineUnreachable,
        Cancelled,
        TooSlow,
        Unavailable,
        Loading,
        ScaledToZero,
        CrashLooping,
        Draining,
        Disconnected,
        ModelFailed,
        InvalidOutput,
        WorkerLost,
        Quarantined,
        InternalError,
    )
}
"""The exception of each outcome that a caller in Python can see, by its reason."""


def known_reason(error: RequestError) -> str:
    """Return the reason of an error in the table of outcomes; a class of the user's own is one of those here."""
    kinds = (kind for kind in type(error).__mro__ if issubclass(kind, RequestError))
    return next(kind.reason for kind in kinds if kind.__module__ == __name__)
