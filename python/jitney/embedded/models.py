"""The models that `run` and `connect` return: each is a function to be awaited, or called."""

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import cache, partial
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, overload

from jitney.context import PROCESS, available_cores
from jitney.context import request_id as running_request_id
from jitney.embedded.callee import Callee, together
from jitney.embedded.mailboxes import LoopMailboxes
from jitney.embedded.streams.parts import Part_co, Parts, SyncParts
from jitney.embedded.values import BUFFERS, FAILED
from jitney.errors import RequestError

if TYPE_CHECKING:
    from jitney import _core

In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)
Priority = Literal["high", "normal", "low"]

_Value = TypeVar("_Value")
_Written = TypeVar("_Written")
REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("jitney_request_id", default=None)
"""The id of calls that name none: in FastAPI that of the HTTP request. In a worker see `context.request_id`."""
LOOP_THREAD: Final[ContextVar[int | None]] = ContextVar("jitney_loop_thread", default=None)
"""The thread of the event loop that serves this request of FastAPI; None elsewhere."""
_AT_ONCE: Final = 1e-9
"""Seconds that are left to a call whose deadline passed while its images were encoded: it fails as any late call."""


def _id(given: str | None) -> str | None:
    """Return the id of a call; of None the engine makes one."""
    if given is not None:
        return given
    return REQUEST_ID.get() or (running_request_id() if PROCESS.computes else None)


def _refuse_on_thread() -> None:
    """Raise if this call would only make a coroutine: a handler on a thread has no event loop that could await it."""
    thread = LOOP_THREAD.get()
    if thread is not None and thread != get_ident() and not _is_in_loop():
        raise RuntimeError(
            "a call of jitney.fastapi.model(…) must be awaited, and this `def` handler runs on a thread: "
            "take jitney.fastapi.sync_model(…), or write `async def` and `await`"
        )


def _refuse_in_loop() -> None:
    """Raise if this call would stop the event loop of an application until its answer is there."""
    if LOOP_THREAD.get() == get_ident() and _is_in_loop():
        raise RuntimeError(
            "a call of jitney.fastapi.sync_model(…) waits, and this `async def` handler runs on the event loop, which "
            "would stop: take jitney.fastapi.model(…) and `await` the call, or write `def`"
        )


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _is_awaited(function: _Function) -> _Function:
    """Mark a function that returns a coroutine as `async def` is: frameworks ask whether to await what they call."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function


@cache
def _image_threads() -> ThreadPoolExecutor:
    """Return jitney's own threads: those of the event loop may all be busy with the program's work."""
    return ThreadPoolExecutor(available_cores(), thread_name_prefix="jitney-images")


async def _on_image_thread(
    write: Callable[[_Value], _Written], value: _Value, timeout_s: float | None
) -> tuple[_Written, float | None]:
    """Encode images on a thread next to the event loop; returns what was written, and what is left of the deadline."""
    began = monotonic()
    written = await asyncio.get_running_loop().run_in_executor(_image_threads(), write, value)
    return written, None if timeout_s is None else max(_AT_ONCE, timeout_s - (monotonic() - began))


class Model(Generic[In_contra, Out_co]):
    """One deployment, to be awaited from any event loop."""

    def __init__(self, callee: Callee, further: "Callable[[str], Model[Any, Any]]", mailboxes: LoopMailboxes) -> None:
        self._callee = callee
        self._further = further
        self._mailboxes = mailboxes
        # Together, because a class with `__getattr__` looks attributes up slowly: 0.05 us each.
        self._of_one_call = callee.write, callee.read, callee.entrance, mailboxes, callee.takes_images

    async def __call__(
        self,
        item: In_contra,
        *,
        timeout_s: float | None = None,
        priority: Priority = "normal",
        request_id: str | None = None,
    ) -> Out_co:
        """Run one item; a RequestError says how it ended if not with an answer. Cancelling the task cancels it.

        `timeout_s`: the deadline, in seconds from now (default: the deployment's `request_timeout_s`).
        `request_id`: what the logs name this call by (default: that of the HTTP request in FastAPI,
        in `predict` that of the request if its items are of one, else a new one).
        """
        write, read, entrance, mailboxes, takes_images = self._of_one_call
        if takes_images and not isinstance(item, BUFFERS):
            (tag, data), timeout_s = await _on_image_thread(write, item, timeout_s)
        else:
            tag, data = write(item)
        if request_id is None:  # as `_id`, without a call
            request_id = REQUEST_ID.get() or (running_request_id() if PROCESS.computes else None)
        mailbox = mailboxes.mailbox()
        future, number = mailbox.call(entrance, tag, data, timeout_s, priority, request_id)
        try:
            raw = await future
        except BaseException:
            mailbox.cancel(number)
            raise
        return self._callee.one(raw) if raw[0] == FAILED else read(raw)

    @overload
    async def many(
        self,
        items: Iterable[In_contra],
        *,
        timeout_s: float | None = None,
        priority: Priority = "normal",
        request_id: str | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[Out_co]: ...
    @overload
    async def many(
        self,
        items: Iterable[In_contra],
        *,
        timeout_s: float | None = None,
        priority: Priority = "normal",
        request_id: str | None = None,
        return_exceptions: bool,
    ) -> list[Out_co | RequestError]: ...
    async def many(
        self,
        items: Iterable[In_contra],
        *,
        timeout_s: float | None = None,
        priority: Priority = "normal",
        request_id: str | None = None,
        return_exceptions: bool = False,
    ) -> Any:
        """Run the items of one request, admitted together; returns their answers in order.

        Raises the first failure after all items have ended; for an item that cannot be sent, before any is sent.
        With `return_exceptions` a failed item is its exception in the list.
        """
        write = partial(self._callee.write_each, return_exceptions=return_exceptions)
        if self._callee.takes_images:
            (written, refused), timeout_s = await _on_image_thread(write, items, timeout_s)
        else:
            written, refused = write(items)
        if not written:
            return together([], refused, return_exceptions=return_exceptions)
        mailbox = self._mailboxes.mailbox()
        future, number = mailbox.call_many(self._callee.entrance, written, timeout_s, priority, _id(request_id))
        try:
            raws = await future
        except BaseException:
            mailbox.cancel(number)
            raise
        return together(self._callee.each(raws), refused, return_exceptions=return_exceptions)

    def stream(
        self,
        item: In_contra,
        *,
        timeout_s: float | None = None,
        priority: Priority = "normal",
        request_id: str | None = None,
    ) -> Parts[Any]:
        """Run one item whose answer comes in parts: `async for part in model.stream(item)`. Best in an `async with`.

        The item is sent when its first part is waited for; `timeout_s` counts from there, and is for the whole answer.
        TypeError if the model answers once.
        """
        read, given_id = self._callee.part_reader(), _id(request_id)

        async def open_in(mailbox: "_core.Mailbox") -> "_core.Stream":
            left_s = timeout_s
            if self._callee.takes_images and not isinstance(item, BUFFERS):
                (tag, data), left_s = await _on_image_thread(self._callee.write, item, timeout_s)
            else:
                tag, data = self._callee.write(item)
            return mailbox.stream(self._callee.entrance, tag, data, left_s, priority, given_id)

        return Parts(self._callee, read, self._mailboxes, open_in)

    def __getattr__(self, method: str) -> "Model[Any, Any]":
        return self._further(method)

    def __repr__(self) -> str:
        return f"<jitney.Model {self._callee.name}>"

    def for_handlers(self) -> "Model[In_contra, Out_co]":
        """Return the same model for handlers of FastAPI, which says so if one calls it that cannot await it."""
        return _HandlersModel(self._callee, lambda name: self._further(name).for_handlers(), self._mailboxes)


class StreamModel(Model[In_contra, Out_co], Generic[In_contra, Out_co, Part_co]):
    """One deployment that answers in parts. A call gives the whole answer, `stream` gives its parts."""

    if TYPE_CHECKING:

        def stream(  # pyright: ignore[reportIncompatibleMethodOverride]
            self,
            item: In_contra,
            *,
            timeout_s: float | None = None,
            priority: Priority = "normal",
            request_id: str | None = None,
        ) -> Parts[Part_co]:
            """Return the parts of the answer to this item."""
            ...


class _HandlersModel(Model[In_contra, Out_co]):
    """A model whose calls look where they are made. Others are spared that: it takes a tenth of a call."""

    @_is_awaited
    def __call__(self, *item: Any, **given: Any) -> Coroutine[Any, Any, Out_co]:  # pyright: ignore[reportIncompatibleMethodOverride]
        _refuse_on_thread()
        return super().__call__(*item, **given)

    @_is_awaited
    def many(self, *items: Any, **given: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        _refuse_on_thread()
        return super().many(*items, **given)


class SyncModel(Generic[In_contra, Out_co]):
    """One deployment, to be called from any thread; each call waits for its answer."""

    def __init__(self, callee: Callee, further: "Callable[[str], SyncModel[Any, Any]]") -> None:
        self._callee = callee
        self._further = further

    def __call__(
        self,
        item: In_contra,
        *,
        timeout_s: float | None = None,
        priority: Priority = "normal",
        request_id: str | None = None,
    ) -> Out_co:
        """Run one item; a RequestError says how it ended if not with an answer."""
        _refuse_in_loop()
        tag, data = self._callee.write(item)
        return self._callee.one(self._callee.entrance.call_and_wait(tag, data, timeout_s, priority, _id(request_id)))

    @overload
    def many(
        self,
        items: Iterable[In_contra],
        *,
        timeout_s: float | None = None,
        priority: Priority = "normal",
        request_id: str | None = None,
        return_exceptions: Literal[False] = False,
    ) -> list[Out_co]: ...
    @overload
    def many(
        self,
        items: Iterable[In_contra],
        *,
        timeout_s: float | None = None,
        priority: Priority = "normal",
        request_id: str | None = None,
        return_exceptions: bool,
    ) -> list[Out_co | RequestError]: ...
    def many(
        self,
        items: Iterable[In_contra],
        *,
        timeout_s: float | None = None,
        priority: Priority = "normal",
        request_id: str | None = None,
        return_exceptions: bool = False,
    ) -> Any:
        """Run the items of one request, admitted together; returns their answers in order.

        Raises the first failure after all items have ended; for an item that cannot be sent, before any is sent.
        With `return_exceptions` a failed item is its exception in the list.
        """
        _refuse_in_loop()
        written, refused = self._callee.write_each(items, return_exceptions=return_exceptions)
        raws = (
            self._callee.entrance.call_many_and_wait(written, timeout_s, priority, _id(request_id)) if written else []
        )
        return together(self._callee.each(raws), refused, return_exceptions=return_exceptions)

    def stream(
        self,
        item: In_contra,
        *,
        timeout_s: float | None = None,
        priority: Priority = "normal",
        request_id: str | None = None,
    ) -> SyncParts[Any]:
        """Run one item whose answer comes in parts: `for part in model.stream(item)`, or in a `with`.

        The item is sent when its first part is waited for; `timeout_s` counts from there, and is for the whole answer.
        TypeError if the model answers once.
        """
        read, given_id = self._callee.part_reader(), _id(request_id)

        def open_here() -> "_core.Stream":
            _refuse_in_loop()
            tag, data = self._callee.write(item)
            return self._callee.entrance.stream(tag, data, timeout_s, priority, given_id)

        return SyncParts(self._callee, read, open_here)

    def __getattr__(self, method: str) -> "SyncModel[Any, Any]":
        return self._further(method)

    def __repr__(self) -> str:
        return f"<jitney.SyncModel {self._callee.name}>"


class SyncStreamModel(SyncModel[In_contra, Out_co], Generic[In_contra, Out_co, Part_co]):
    """One deployment that answers in parts. A call gives the whole answer, `stream` gives its parts."""

    if TYPE_CHECKING:

        def stream(  # pyright: ignore[reportIncompatibleMethodOverride]
            self,
            item: In_contra,
            *,
            timeout_s: float | None = None,
            priority: Priority = "normal",
            request_id: str | None = None,
        ) -> SyncParts[Part_co]:
            """Return the parts of the answer to this item."""
            ...
