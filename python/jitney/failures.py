"""Describes failures of user code: one line for the client, the frames of user code for the log."""

import json
import os
import reprlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent
from types import TracebackType
from typing import Final

from jitney.errors import ConfigError, InvalidOutput, JitneyError, ModelFailed, RequestError, TargetError

_OWN_FOLDER = Path(__file__).parent
_MODELS_FOLDER = _OWN_FOLDER / "models"
_LIBRARY_FOLDER = Path(os.__file__).parent
_LONGEST_DETAIL = 2_000
_LONGEST_SHOWN = 60
_LONGEST_TEXT = 10 * _LONGEST_DETAIL
_LONGEST_TRACEBACK = 20_000
_LONGEST_LINE = 16 << 10
"""The front cuts longer lines of a worker into pieces, and a piece of a line in JSON is not JSON."""
# What would move a terminal's cursor; line breaks and tabs are dealt with where they occur.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
_MOST_KINDS = 256
_SOURCES = {"request": "request_id", "requests": "request_ids"}
_OWN, _NAME = "\x1e", "\x1f"
"""With these bytes lines begin that the front does not attribute: see `workers/backends/process/output/writing.rs`."""
NO_TERMINAL: Final = "a worker has no terminal for a debugger: use `jitney check`, or `jitney serve --inline`"
_is_relayed = False
_WINDOW_S = 60.0
_MOST_LINES = 10
"""Lines of one kind of failure in a window, without the one with the traceback."""
_MOST_SOURCES = 100
"""Failures that were skipped and that a line names; further ones are counted."""


def one_line(error: BaseException) -> str:
    """Say what was raised, without a traceback: clients may read it. Never raises."""
    text = printable(error)
    if type(error).__name__ == "BdbQuit" and not text:  # of `pdb.set_trace()`
        text = NO_TERMINAL
    return cut(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def printable(value: object) -> str:
    """Say a value of user code in one line of bounded length that UTF-8 can hold. Never raises.

    An exception's `__str__` may itself raise, and its text may hold lone surrogates, as paths from the disk do.
    """
    try:
        text = " ".join(str(value)[:_LONGEST_TEXT].split()).translate(_CONTROLS)
    except BaseException as error:
        return f"(its text cannot be shown: {type(error).__name__})"
    return cut(_as_utf8(text))


def shown(value: object) -> str:
    """Say a value as Python writes it, in at most 60 characters. Never raises."""
    try:
        text = reprlib.repr(value)
    except BaseException as error:
        text = f"(it cannot be shown: {type(error).__name__})"
    text = printable(text)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def cut(text: str) -> str:
    """Keep a detail to a length that fits into an answer."""
    return text if len(text) <= _LONGEST_DETAIL else text[: _LONGEST_DETAIL - 1] + "…"


def _as_utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def user_traceback(error: BaseException) -> str:
    """Format a traceback that begins in user code, and ends there if the error is ours.

    Without any user code it is whole, so that a fault of jitney can be found; what jitney raises on purpose needs none.
    """
    formatted = traceback.TracebackException(type(error), error, error.__traceback__)
    if isinstance(error, SyntaxError) and not is_of_user_code(error):
        del formatted.stack[:]  # it was compiled, not run: its own lines say where, and the frames are of the import
    users = [place for place, frame in enumerate(_walk(error.__traceback__)) if _is_users(frame)]
    if isinstance(error, JitneyError) or (users and _is_refusal(error)):
        del formatted.stack[users[-1] + 1 if users else 0 :]
    del formatted.stack[: users[0] if users else 0]
    text = "".join(formatted.format())
    if len(text) > _LONGEST_TRACEBACK:
        half = _LONGEST_TRACEBACK // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters …\n{text[-half:]}"
    return _as_utf8(text.translate(_CONTROLS))


def load_failure_text(error: BaseException) -> str:
    """Format what a terminal is to see of an error that ended a load, or nothing where its message says it all."""
    if isinstance(error, JitneyError):
        cause = error.__cause__ or error
        if isinstance(cause, (TargetError, ConfigError)) or not (
            is_of_user_code(cause) or isinstance(cause, SyntaxError)
        ):
            return ""
        return user_traceback(cause)
    return user_traceback(error)


def user_line(error: BaseException) -> str:
    """Say where in user code an error was raised: " (model.py, line 3)", or nothing."""
    users = [frame for frame in _walk(error.__traceback__) if _is_users(frame)]
    return f" ({Path(users[-1].tb_frame.f_code.co_filename).name}, line {users[-1].tb_lineno})" if users else ""


def is_of_user_code(error: BaseException) -> bool:
    """Whether user code was running when it was raised, so that a traceback says where."""
    return any(map(_is_users, _walk(error.__traceback__)))


def _walk(frames: TracebackType | None) -> Iterator[TracebackType]:
    while frames is not None:
        yield frames
        frames = frames.tb_next


def _is_refusal(error: BaseException) -> bool:
    """Whether jitney itself says no to what user code gave it: then its own frames say nothing."""
    frames = list(_walk(error.__traceback__))
    is_own = Path(frames[-1].tb_frame.f_code.co_filename).is_relative_to(_OWN_FOLDER) and not _is_users(frames[-1])
    return is_own and isinstance(error, (TypeError, ValueError))


def _is_users(frames: TracebackType) -> bool:
    name = frames.tb_frame.f_code.co_filename
    file = Path(name)
    if file.is_relative_to(_OWN_FOLDER):
        return file.is_relative_to(_MODELS_FOLDER)
    is_library = file.is_relative_to(_LIBRARY_FOLDER) and "site-packages" not in file.parts
    return not (is_library or name.startswith("<frozen ") or name == "<string>")


@dataclass(slots=True)
class _Kind:
    """Failures of one type from one line of code."""

    first: str
    """What the log has next to the traceback: "request 3f2a…"."""
    since: float
    lines: int = 0
    """Lines that were printed since then."""
    skipped: int = 0
    sources: list[str] = field(default_factory=list[str])
    """Names of the failures that were skipped, as many as a line has room for."""


class FailureLog:
    """Prints the traceback of each kind of failure once. Later failures of the kind name the request that has it.

    A model that fails on every item must not flood the terminal: a kind has a few lines a minute, and what is skipped
    is named in the next line.
    """

    def __init__(self, who: str = "", *, as_json: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """Take who fails, as the front's log has it: "deployment/replica"."""
        self._who = who
        self._as_json = as_json
        self._clock = clock
        self._kinds: dict[tuple[type[BaseException], str, int], _Kind] = {}

    def log(self, where: str, error: BaseException, source: str = "") -> None:
        """Print the failure to stderr, or note it for a later line if its kind had enough lines in this minute.

        `source` names the request, "request 3f2a…", or "item 8" where no request has an id.
        """
        place = list(traceback.walk_tb(error.__traceback__))
        file, line = (place[-1][0].f_code.co_filename, place[-1][1]) if place else ("", 0)
        key, now = (type(error), file, line), self._clock()
        kind = self._kinds.get(key)
        if kind is not None:
            self._log_again(kind, where, error, source, now)
        elif len(self._kinds) < _MOST_KINDS:
            self._kinds[key] = _Kind(source.partition(",")[0].replace("requests ", "request "), now)
            # The message names what an answer lacks: no line of code raised it.
            frames = "" if isinstance(error, InvalidOutput) and error.__cause__ is None else user_traceback(error)
            self._print(f"{where} failed", error, source, frames)

    def end(self) -> None:
        """Name the failures that wait for the next line of their kind: the worker ends, and there will be none."""
        for kind in self._kinds.values():
            if kind.skipped:
                as_first = f", with the traceback of {kind.first}" if kind.first else ""
                message = f"failed {kind.skipped} more times{as_first}: {_skipped(kind)}"
                print_failure(message, who=self._who, source="", frames="", as_json=self._as_json)

    def _log_again(self, kind: _Kind, where: str, error: BaseException, source: str, now: float) -> None:
        if now - kind.since >= _WINDOW_S:
            kind.since, kind.lines = now, 0
        if kind.lines >= _MOST_LINES:
            kind.skipped += 1
            if len(kind.sources) < _MOST_SOURCES:
                kind.sources.append(source.partition(" ")[2])
            return
        skipped = f" {kind.skipped + 1} more times (before this: {_skipped(kind)})" if kind.skipped else " again"
        kind.lines += 1
        as_first = f", with the traceback of {kind.first}" if kind.first else ""
        self._print(f"{where} failed{skipped}{as_first}", error, source, "", kind.first)

    def _print(self, message: str, error: BaseException, source: str, frames: str, first: str = "") -> None:
        text = printable(error) if isinstance(error, JitneyError) else one_line(error)
        reason = error.reason if isinstance(error, RequestError) else ModelFailed.reason
        message = f"{message}: {text}"
        more = {"traceback_of": first.partition(" ")[2]} if first else {}
        print_failure(
            message, who=self._who, source=source, frames=frames, as_json=self._as_json, reason=reason, more=more
        )


def _skipped(kind: _Kind) -> str:
    """Name the failures that were skipped, and forget them."""
    count, sources = kind.skipped, kind.sources
    kind.skipped, kind.sources = 0, []
    return ", ".join(sources) + (f" and {count - len(sources)} more" if count > len(sources) else "")


def print_failure(  # noqa: PLR0913 -- the fields of a line
    message: str,
    *,
    who: str,
    source: str,
    frames: str,
    as_json: bool,
    reason: str = "",
    more: Mapping[str, object] | None = None,
) -> None:
    """Print one failure to stderr, in the format of the front's log. Never raises."""
    about = f" ({source})" if source else ""
    kind, _, name = source.partition(" ")
    fields = _replica(who) | ({"reason": reason} if reason else {}) | dict(more or {})
    fields |= {_SOURCES.get(kind, kind): name} if source else {}
    fields |= {"traceback": frames} if frames else {}
    # Indented, so that no line of an exception's text looks like one of the log.
    frames = indent(frames, "  ")
    _print_line("ERROR", f"{who}: {message}" if who else message, f"{about}\n{frames}", fields if as_json else None)


def print_warning(message: str, *, who: str, as_json: bool) -> None:
    """Print a line that is not a failure to stderr, in the format of the front's log. Never raises."""
    _print_line("WARN", f"{who}: {message}", "\n", _replica(who) if as_json else None)


def _replica(who: str) -> dict[str, object]:
    """Return the fields that name a replica, of "deployment/replica"."""
    deployment, _, replica = who.rpartition("/")
    return {"deployment": deployment, "replica": int(replica)} if deployment and replica.isdecimal() else {}


def relay_through_front(who: str = "") -> None:
    """Mark what this worker logs from now on: the front writes it unchanged, and all else that it prints with its name.

    `who` is the name, "deployment/replica", once it is known.
    """
    global _is_relayed  # noqa: PLW0603 - the one place of a process-wide fact
    _is_relayed = True
    if who:
        with suppress(OSError):
            os.write(2, f"{_NAME}{who}\n".encode())


def _print_line(level: str, message: str, rest: str, fields: dict[str, object] | None) -> None:
    """Print it with these further fields as JSON, or, where there are none to be, with this rest as text."""
    at = datetime.now(UTC).isoformat().removesuffix("+00:00") + "Z"
    with suppress(Exception):  # a closed terminal must not fail a batch
        if fields is None:
            text = f"{at} {level} {message}{rest}"
        else:
            text = _as_json({"timestamp": at, "level": level, "message": message} | fields) + "\n"
        if _is_relayed:
            text = "".join(f"{_OWN}{line}\n" for line in text.removesuffix("\n").split("\n"))
        print(text, file=sys.stderr, end="", flush=True)


def _as_json(fields: dict[str, object]) -> str:
    """Write a line as JSON. If it would be too long, the middle of its traceback is left out."""
    text, frames = json.dumps(fields), str(fields.get("traceback", ""))
    kept = len(frames) // 2
    while len(text) >= _LONGEST_LINE - len(_OWN) and kept:
        kept = kept * 3 // 4
        shown = f"{frames[:kept]}\n…\n{frames[len(frames) - kept :]}"
        text = json.dumps(fields | {"traceback": shown})
    return text
