"""The parts of one answer: what `model.stream(item)` returns."""

from collections import deque
from collections.abc import Awaitable, Callable
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from jitney.embedded.callee import Callee
from jitney.embedded.mailboxes import LoopMailboxes
from jitney.embedded.values import ENDED, FAILED, Read
from jitney.errors import Cancelled
from jitney.failures import one_line
from jitney.types.steps import NOTHING, End, Usage

if TYPE_CHECKING:
    from jitney import _core

Part_co = TypeVar("Part_co", covariant=True)


class _Received(Generic[Part_co]):
    """The events of one answer, and how it ended."""

    def __init__(self, callee: Callee, read: Read) -> None:
        self._callee: Final = callee
        self._read: Final = read
        self._stream: _core.Stream | None = None
        self._events: Final[deque[Any]] = deque()
        """What has come and the caller has not taken."""
        self._reading: Final = Lock()
        """Locked while a caller waits for what comes next."""
        self._end: End[Any] | None = None
        self._failure: Exception | None = None
        self.received = 0
        """How many parts the caller has taken. With 0 the caller has seen no part of the answer."""

    @property
    def end(self) -> End[Any]:
        """Why the answer ended, its usage, and the whole answer if the model gives one; known after the last part."""
        if self._end is None:
            why = "read all its parts first" if self._failure is None else one_line(self._failure)
            raise RuntimeError(f"the answer of {self._callee.name} has no end: {why}") from self._failure
        return self._end

    def close(self) -> None:
        """Take no more parts: the item is cancelled, unless it has ended."""
        if self._end is None and self._failure is None:
            self._failure = Cancelled(f"the stream of {self._callee.name} was closed before its end")
        self._events.clear()
        if self._stream is not None:
            self._stream.cancel()

    @property
    def _is_over(self) -> bool:
        return self._end is not None or self._failure is not None

    @property
    def _lacks_events(self) -> bool:
        """Whether what comes next must be waited for."""
        return not self._events and not self._is_over

    def _enter(self) -> None:
        if not self._reading.acquire(blocking=False):
            raise RuntimeError(
                f"the stream of {self._callee.name} is being read already: one caller at a time reads it"
            )

    def _came(self, events: list[Any]) -> None:
        """Take what has come; nothing if the stream was closed meanwhile."""
        if not self._is_over:
            self._events.extend(events)

    def _next(self, stop: type[Exception]) -> Part_co:
        """Return the next part that has come; raise `stop` after the last one, or what the item failed with."""
        if self._failure is not None:
            raise self._failure
        if not self._events:
            raise stop
        raw = self._events.popleft()
        if raw[0] == ENDED:
            self._end = self._read_end(*raw[1])
            raise stop
        if raw[0] == FAILED:
            self._failure = self._callee.error(raw[1])
            raise self._failure
        try:
            part = self._read(raw)
        except BaseException:
            self.close()
            raise
        self.received += 1
        return part

    def _read_end(self, reason: str, usage: tuple[int, int] | None, whole: Any) -> End[Any]:
        answer = NOTHING if whole is None else self._callee.read(whole)
        return End(answer=answer, reason=reason, usage=None if usage is None else Usage(*usage))

    def __repr__(self) -> str:
        return f"<jitney.{type(self).__name__} of {self._callee.name}, {self.received} received>"


class Parts(_Received[Part_co]):
    """The parts of one answer, for an event loop: `async with model.stream(item) as parts`, `async for part in parts`.

    The item is cancelled at the end of the block, when this object is dropped, or with a task that waits here.
    """

    def __init__(
        self,
        callee: Callee,
        read: Read,
        mailboxes: LoopMailboxes,
        open_in: "Callable[[_core.Mailbox], Awaitable[_core.Stream]]",
    ) -> None:
        super().__init__(callee, read)
        self._mailboxes: Final = mailboxes
        self._open_in: Final = open_in

    async def begin(self) -> Self:
        """Wait for the first part, and return this stream. What fails before the first part is raised here.

        A stream that was closed is returned too: reading it raises Cancelled.
        """
        if self._lacks_events:
            await self._wait()
        if self._events and self._events[0][0] == FAILED:
            self._next(StopAsyncIteration)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Part_co:
        if self._lacks_events:
            await self._wait()
        return self._next(StopAsyncIteration)

    async def _wait(self) -> None:
        self._enter()
        try:
            mailbox = self._mailboxes.mailbox()
            if self._stream is None:
                self._stream = await self._open_in(mailbox)
            future, number = mailbox.next(self._stream)
            try:
                self._came(await future)
            except BaseException:
                mailbox.cancel(number)
                raise
        except BaseException:
            self.close()
            raise
        finally:
            self._reading.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker refuses what these explain

        def __await__(self) -> object:
            """Say how a stream is read."""
            raise self._misused("a stream is not awaited")

        def __iter__(self) -> object:
            """Say how a stream is read."""
            raise self._misused("the parts of this stream must be awaited")

        def __enter__(self) -> object:
            """Say how a stream is read."""
            raise self._misused("the parts of this stream must be awaited")

        def __exit__(self, *_: object) -> None:
            """Exist, so that `with` comes as far as `__enter__`."""

    def _misused(self, what: str) -> TypeError:
        opens = f"async with models.{self._callee.name}.stream(item) as parts"
        return TypeError(f"{what}: write `{opens}`, then `async for part in parts`")


class SyncParts(_Received[Part_co]):
    """The parts of one answer, for threads: `for part in model.stream(item)`. It can be a `with` block.

    The item is cancelled at the end of the block, and when this object is dropped.
    """

    def __init__(self, callee: Callee, read: Read, open_here: "Callable[[], _core.Stream]") -> None:
        super().__init__(callee, read)
        self._open_here: Final = open_here

    def begin(self) -> Self:
        """Wait for the first part, and return this stream. What fails before the first part is raised here.

        A stream that was closed is returned too: reading it raises Cancelled.
        """
        if self._lacks_events:
            self._wait()
        if self._events and self._events[0][0] == FAILED:
            self._next(StopIteration)
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Part_co:
        if self._lacks_events:
            self._wait()
        return self._next(StopIteration)

    def _wait(self) -> None:
        self._enter()
        try:
            if self._stream is None:
                self._stream = self._open_here()
            self._came(self._stream.wait())
        except BaseException:
            self.close()
            raise
        finally:
            self._reading.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker refuses what these explain

        def __await__(self) -> object:
            """Say how a stream is read."""
            raise self._misused("a stream is not awaited")

        def __aiter__(self) -> object:
            """Say how a stream is read."""
            raise self._misused("this stream is for threads, whose calls wait")

        async def __aenter__(self) -> object:
            """Say how a stream is read."""
            raise self._misused("this stream is for threads, whose calls wait")

        async def __aexit__(self, *_: object) -> None:
            """Exist, so that `async with` comes as far as `__aenter__`."""

    def _misused(self, what: str) -> TypeError:
        opens = f"with models.{self._callee.name}.stream(item) as parts"
        return TypeError(f"{what}: write `{opens}`, then `for part in parts`")
