"""What decoders raise, as an error that names the field."""

import re
from typing import Any, Final

import msgspec

from jitney.errors import InvalidInput, MalformedBody

_AT: Final = re.compile(r"^(?P<what>.*) - at `(?P<path>(?:key in )?[^`]*)`$", re.DOTALL)
_NAMED: Final = re.compile(r"(?:missing required|contains unknown) field `(?P<name>[^`]*)`")


def refusal(error: Exception) -> InvalidInput:
    """Turn any exception of decoding one item into what the client is told."""
    if isinstance(error, InvalidInput):
        return error
    if isinstance(error, msgspec.ValidationError):
        return _of_msgspec(str(error))
    if isinstance(error, (msgspec.DecodeError, UnicodeDecodeError)):
        return MalformedBody(str(error))
    if type(error).__module__.startswith("pydantic") and hasattr(error, "errors"):
        return _of_pydantic(error)
    return InvalidInput(f"the input's own validation raised {type(error).__name__}: {error}")


def _of_msgspec(text: str) -> InvalidInput:
    found = _AT.match(text)
    what, path = (found["what"], found["path"]) if found else (text, "$")
    named = _NAMED.search(what)
    field = f"{path}.{named['name']}" if named else path
    return InvalidInput(f"{field}: {what}", field=field)


def _of_pydantic(error: Any) -> InvalidInput:
    problems: list[Any] = error.errors(include_url=False, include_context=False)
    first = problems[0]
    if first["type"] == "json_invalid":
        return MalformedBody(str(first["msg"]))
    field = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidInput(f"{field}: {first['msg']}{more}", field=field)
