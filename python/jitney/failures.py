"""How the failures of user code are told: one line for the client, their own frames for the terminal."""

import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from jitney.errors import JitneyError

_OWN_FOLDER = str(Path(__file__).parent)
_MODELS_FOLDER = str(Path(__file__).parent / "models")
_LIBRARY_FOLDER = sysconfig.get_path("stdlib")
_LONGEST_DETAIL = 2_000
_MOST_KINDS = 256


def one_line(error: BaseException) -> str:
    """Say what was raised, without a traceback: clients may read it. Never raises."""
    text = sayable(error)
    return cut(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def sayable(value: object) -> str:
    """Say a value of user code in one line of bounded length that UTF-8 can hold. Never raises.

    An exception's `__str__` may itself raise, and its text may hold lone surrogates, as paths from the disk do.
    """
    try:
        text = " ".join(str(value).split())
    except BaseException as error:
        return f"(its text cannot be said: {type(error).__name__})"
    return cut(_as_utf8(text))


def cut(text: str) -> str:
    """Keep a detail to a length that fits into an answer."""
    return text if len(text) <= _LONGEST_DETAIL else text[: _LONGEST_DETAIL - 1] + "…"


def _as_utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def user_traceback(error: BaseException) -> str:
    """Format a traceback that begins in user code, and ends there if the error is ours.

    Without any user code it is whole, so that a fault of jitney can be found; what jitney raises on purpose needs none.
    """
    told = traceback.TracebackException(type(error), error, error.__traceback__)
    users = [place for place, frame in enumerate(_walk(error.__traceback__)) if _is_users(frame)]
    if isinstance(error, JitneyError):
        del told.stack[users[-1] + 1 if users else 0 :]
    del told.stack[: users[0] if users else 0]
    return _as_utf8("".join(told.format()))


def is_of_user_code(error: BaseException) -> bool:
    """Whether user code was running when it was raised, so that a traceback says where."""
    return any(map(_is_users, _walk(error.__traceback__)))


def _walk(frames: TracebackType | None) -> Iterator[TracebackType]:
    while frames is not None:
        yield frames
        frames = frames.tb_next


def _is_users(frames: TracebackType) -> bool:
    file = frames.tb_frame.f_code.co_filename
    if file.startswith(_OWN_FOLDER):
        return file.startswith(_MODELS_FOLDER)
    is_library = file.startswith(_LIBRARY_FOLDER) and "site-packages" not in file
    return not (is_library or file.startswith("<frozen "))


class Told:
    """Prints each distinct failure once: a model that fails on every item must not flood the terminal."""

    def __init__(self) -> None:
        self._kinds: set[tuple[type[BaseException], str, int]] = set()

    def tell(self, where: str, error: BaseException) -> None:
        """Print the traceback to stderr, unless one of this type from this line was printed before."""
        place = list(traceback.walk_tb(error.__traceback__))
        file, line = (place[-1][0].f_code.co_filename, place[-1][1]) if place else ("", 0)
        kind = (type(error), file, line)
        if kind in self._kinds or len(self._kinds) >= _MOST_KINDS:
            return
        self._kinds.add(kind)
        with suppress(Exception):  # a terminal that is gone is no reason to fail a batch
            print(f"{where} failed (further failures of this kind are not printed):", file=sys.stderr)
            print(user_traceback(error), file=sys.stderr, end="", flush=True)
