"""What decoders raise, as an error that names the field."""

import math
import re
from typing import Any, Final, NamedTuple

import msgspec

from jitney.errors import NOT_NOW, InvalidInput, MalformedBody, ModelFailed, WorkerLost, known_reason, was_asked
from jitney.failures import one_line, printable

_AT: Final = re.compile(r"^(?P<what>.*) - at `(?P<path>(?:key in )?[^`]*)`$", re.DOTALL)
_NAMED: Final = re.compile(r"(?:missing required|contains unknown) field `(?P<name>[^`]*)`")


_VALIDATION_ERRORS: Final = (
    ValueError,
    TypeError,
    AssertionError,
    RecursionError,
    ArithmeticError,
    msgspec.MsgspecError,
)
"""What a validation raises about its input, or a decoder for odd input. Other exceptions are internal faults."""


MOST_LEVELS: Final = 128
"""How deep an item may be nested for certain: Python's own stack allows more, but not the same number everywhere."""


def too_deep() -> InvalidInput:
    """Return the refusal of an item that is nested too deeply."""
    return InvalidInput(f"$: the item is nested too deeply; send at most {MOST_LEVELS} levels", field="$")


def refusal(error: BaseException) -> InvalidInput | ModelFailed:
    """Turn any exception of decoding one item into the error that the client gets. Never raises.

    An InvalidInput is the client's mistake; a ModelFailed is one of this side, such as a missing module, and its cause
    is the exception.
    """
    try:
        if _is_fault(error):
            fault = ModelFailed(f"decoding the item raised {one_line(error)}")
            fault.__cause__ = error
            return fault
        return bounded(_refusal(error))
    except Exception:
        return InvalidInput(f"the input's own validation raised {one_line(error)}")


class Verdict(NamedTuple):
    """Why an item has no result: a row of the table of outcomes, and what the client gets."""

    reason: str
    detail: str
    field: str | None = None
    status: int | None = None
    retry_after_s: float | None = None


NOT_WANTED: Final = Verdict("cancelled", "no request waits for this answer any more")
"""The verdict on an item that is left out. The front knows why: it was cancelled, or its deadline passed."""


def verdict_of(error: BaseException) -> Verdict:
    """Return the outcome of an item for which user code raised or returned this error."""
    if was_asked(error) and not isinstance(error, NOT_NOW):
        # Another model refused what this one asked, or failed: the client did not cause that.
        reason = known_reason(error) if isinstance(error, WorkerLost) else "model_failed"
        return Verdict(reason, one_line(error) if reason == "model_failed" else printable(error))
    if isinstance(error, InvalidInput):
        refused = bounded(error)
        return Verdict(refused.reason, refused.message, refused.field, refused.status)
    if isinstance(error, NOT_NOW):
        return Verdict(known_reason(error), printable(error), retry_after_s=_retry_after_s(error))
    return Verdict("model_failed", one_line(error))


def _retry_after_s(error: BaseException) -> float | None:
    try:
        seconds = float(getattr(error, "retry_after_s", None) or 0)
    except Exception:  # a subclass that does not call our `__init__`
        return None
    return seconds if 0 < seconds < math.inf else None


def _is_fault(error: BaseException) -> bool:
    return not isinstance(error, (InvalidInput, *_VALIDATION_ERRORS)) and not _is_pydantic(error)


def _is_pydantic(error: BaseException) -> bool:
    return type(error).__module__.startswith("pydantic") and hasattr(error, "errors")


def bounded(error: InvalidInput) -> InvalidInput:
    """Make it what an answer can carry: user code may have put anything there. Never raises."""
    kind = MalformedBody if isinstance(error, MalformedBody) else InvalidInput
    try:
        message, status, field = error.message, error.status, error.field
    except Exception:  # a subclass that does not call our `__init__`
        return kind(printable(error))
    is_status = type(status) is int and 400 <= status <= 499
    text, field_text = printable(message), None if field is None else printable(field)
    if is_status and (text, field_text, kind.reason) == (message, field, error.reason):
        return error
    return kind(text, status=status if is_status else 422, field=field_text)


def _refusal(error: BaseException) -> InvalidInput:
    if isinstance(error, InvalidInput):
        return error
    if isinstance(error, msgspec.ValidationError):
        return _of_msgspec(str(error), getattr(error.__cause__, "__cause__", None))
    if isinstance(error, RecursionError):
        return too_deep()
    if isinstance(error, (msgspec.DecodeError, UnicodeDecodeError)):
        return MalformedBody(str(error))
    if _is_pydantic(error):
        return _of_pydantic(error)
    return InvalidInput(f"the input's own validation raised {one_line(error)}")


def _of_msgspec(text: str, cause: BaseException | None) -> InvalidInput:
    """Return the refusal of msgspec's error; `cause` is what the decoding of a custom type raised, such as an image."""
    found = _AT.match(text)
    what, path = (found["what"], found["path"]) if found else (text, "$")
    named = _NAMED.search(what)
    field = f"{path}.{named['name']}" if named else path
    if isinstance(cause, InvalidInput):
        return InvalidInput(f"{field}: {what}", field=field, status=cause.status)
    return InvalidInput(f"{field}: {what}", field=field)


def _of_pydantic(error: Any) -> InvalidInput:
    problems: list[Any] = error.errors(include_url=False, include_context=False)
    first = problems[0]
    if first["type"] == "json_invalid":
        return MalformedBody(str(first["msg"]))
    field = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidInput(f"{field}: {first['msg']}{more}", field=field)
