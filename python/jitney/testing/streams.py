"""Answers in parts without an engine: what `model.stream(item)` reads in tests."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from jitney.codecs import tags
from jitney.embedded.values import NAMED
from jitney.testing.tensors import Tensor

Event = tuple[int, Any, str | None]
"""A part, the end or the failure of an answer, as `embedded.streams` reads it."""


def encoded(tag: int, value: bytes, media_type: str | None) -> Event:
    """Return an encoded value as a part or an answer."""
    return (tag, bytes(value).decode() if tag == tags.TEXT else bytes(value), media_type)


def arrays(rows: dict[str, Tensor]) -> Event:
    """Return arrays by name as a part or an answer. An array without a name is one alone."""
    if "" in rows:
        return (tags.TENSOR, rows[""], None)
    return (NAMED, [(name, (tags.TENSOR, row, None)) for name, row in rows.items()], None)


class PythonStream:
    """Stands for `_core.Stream`. It reads events on the one thread of its engine.

    `inline` computes the whole answer before the first event. A fake computes each event when it is waited for.
    """

    def __init__(self, events: Iterator[Event], thread: ThreadPoolExecutor) -> None:
        self._events: Final = events
        self._thread: Final = thread
        self._is_cancelled = False

    def wait(self) -> list[Event]:
        """Wait on this thread for what comes next."""
        return self.later().result()

    def later(self) -> "Future[list[Event]]":
        """Begin to compute what comes next."""
        return self._thread.submit(self._next)

    def cancel(self) -> None:
        """End the computation, behind the event that is computed now."""
        if not self._is_cancelled:
            self._is_cancelled = True
            with suppress(RuntimeError):  # the engine has ended, and its thread too
                self._thread.submit(getattr(self._events, "close", bool))

    def _next(self) -> list[Event]:
        if self._is_cancelled:
            return []
        event = next(self._events, None)
        return [] if event is None else [event]


@dataclass
class PartEvents:
    """Collects the parts of items as the worker writes them."""

    _events: dict[int, list[Event]] = field(default_factory=dict[int, list[Event]])
    _rows: dict[int, dict[str, Tensor]] = field(default_factory=dict[int, dict[str, Tensor]])

    def values(self, indices: Sequence[int], tag: int, data: Sequence[bytes], media_type: str | None = None) -> None:
        """Take an encoded part of each item."""
        for index, value in zip(indices, data, strict=True):
            self._add(index, encoded(tag, value, media_type))

    def rows(self, indices: Sequence[int], name: str, dtype: str, row_shape: Sequence[int], data: Any) -> None:
        """Take an array of a part of each item."""
        for index, row in zip(indices, data, strict=True):
            if name in self._rows.get(index, ()):
                self._end_rows(index)
            self._rows.setdefault(index, {})[name] = Tensor.of(dtype, row_shape, row.tobytes())

    def of(self, index: int) -> list[Event]:
        """Return the parts of an item."""
        self._end_rows(index)
        return self._events.get(index, [])

    def _add(self, index: int, event: Event) -> None:
        self._end_rows(index)
        self._events.setdefault(index, []).append(event)

    def _end_rows(self, index: int) -> None:
        rows = self._rows.pop(index, None)
        if rows is not None:
            self._events.setdefault(index, []).append(arrays(rows))
