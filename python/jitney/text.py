"""Text from token ids, a piece at a time: for models that write."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

_BROKEN: Final = "\ufffd"
"""What a decoder writes for bytes that are not UTF-8, such as the first half of a character."""
_MOST_BROKEN: Final = 3
"""A character has up to four bytes, so that at most three of them wait for the rest."""


class Increments:
    """Turns token ids into text, a few at a time: `said = increments(ids)`, and `increments.rest()` at the end.

    Many characters take several tokens. The text of a token that ends within a character is the character U+FFFD, and
    the next token turns it into something else. So what could still change is given with a later token. The pieces put
    together are the text of all tokens.

    `decode` turns a list of ids into text. The text of more ids must begin with the text of fewer: switch off options
    that tidy spaces.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode: Final = decode
        self._before: list[int] = []
        """Ids whose text was given: what follows needs them only for the space between."""
        self._ids: list[int] = []
        """Ids since then. They begin with a whole character."""
        self._given = 0
        """Letters of the text of all these ids that were given."""

    def __call__(self, ids: Iterable[int]) -> str:
        """Take the next ids, and return the text that they complete."""
        count = len(self._ids)
        self._ids += ids
        if len(self._ids) == count:
            return ""
        text = self._decode(self._before + self._ids)
        whole = text.rstrip(_BROKEN)
        if len(text) - len(whole) > _MOST_BROKEN:
            whole = text  # a character has not so many: the model writes bytes that are not UTF-8
        said, self._given = whole[self._given :], max(self._given, len(whole))
        if len(whole) == len(text):
            self._before, self._ids = self._ids, []
            self._given = len(self._decode(self._before))
        return said

    def rest(self) -> str:
        """Return what was not given yet: the character that no token completed."""
        said = self._decode(self._before + self._ids)[self._given :] if self._ids else ""
        self._before, self._ids, self._given = [], [], 0
        return said


class Stops:
    """Ends a text at the first of these stop strings, which is left out: `said, is_over = stops(piece)`.

    A piece may end with the beginning of a stop string. That beginning is given only when it is clear that the rest
    does not follow. `rest()` returns it when the text has ended.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops: Final = [stop for stop in stops if stop]
        self._waiting = ""

    def __call__(self, piece: str) -> tuple[str, bool]:
        """Take the next piece; returns what may be given, and whether a stop string was found."""
        text = self._waiting + piece
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self._waiting = ""
            return text[: min(places)], True
        waits = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._waiting = text[len(text) - waits :]
        return text[: len(text) - waits], False

    def rest(self) -> str:
        """Return what was not given yet, because it could have become a stop string."""
        said, self._waiting = self._waiting, ""
        return said


def _overlap(text: str, stop: str) -> int:
    """Return how many of the last letters of a text are the first of a stop string."""
    longest = min(len(text), len(stop) - 1)
    return next((count for count in range(longest, 0, -1) if text.endswith(stop[:count])), 0)
