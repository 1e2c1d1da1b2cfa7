"""How the failures of user code are told: one line for the client, their own frames for the terminal."""

import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_OWN_FOLDER = str(Path(__file__).parent)
_MODELS_FOLDER = str(Path(__file__).parent / "models")
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
    """Format a traceback that begins in user code, as far as there is any."""
    frames = error.__traceback__
    while frames is not None and _is_ours(frames) and frames.tb_next is not None:
        frames = frames.tb_next
    return _as_utf8("".join(traceback.format_exception(type(error), error, frames)))


def _is_ours(frames: TracebackType) -> bool:
    file = frames.tb_frame.f_code.co_filename
    is_import = file.startswith("<frozen importlib")
    return is_import or (file.startswith(_OWN_FOLDER) and not file.startswith(_MODELS_FOLDER))


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
