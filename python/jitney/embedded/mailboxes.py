"""How answers reach event loops: each loop that calls has a mailbox, which the engine fills."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from jitney.embedded import native

if TYPE_CHECKING:
    from jitney import _core


class LoopMailboxes:
    """The mailbox of each event loop that calls.

    A loop owns its mailbox and drops it when the loop is closed; here are weak references only.
    """

    def __init__(self, new: "Callable[[asyncio.AbstractEventLoop], _core.Mailbox]" = native.mailbox) -> None:
        # The loop that called last and its mailbox, as one value: loops of other threads change it too.
        self._last: tuple[asyncio.AbstractEventLoop | None, Callable[[], _core.Mailbox | None]] = (None, _nothing)
        self._new = new
        self._known: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_core.Mailbox]] = WeakKeyDictionary()

    def mailbox(self) -> "_core.Mailbox":
        """Return the mailbox of the running loop."""
        loop = asyncio.get_running_loop()
        of, last = self._last
        if of is loop and (mailbox := last()) is not None:
            return mailbox
        mailbox = self._known.get(loop, _nothing)()
        if mailbox is None:
            mailbox = self._new(loop)
            loop.add_reader(mailbox.fileno(), mailbox.drain)
            self._known[loop] = ref(mailbox)
        self._last = loop, ref(mailbox)
        return mailbox

    async def wait_for(self, starting: "_core.Starting") -> Any:
        """Wait for something that the engine does."""
        mailbox = self.mailbox()
        future, number = mailbox.wait_for(starting)
        try:
            return await future
        except BaseException:
            mailbox.cancel(number)
            raise

    def close(self, reason: str, detail: str) -> None:
        """Let the running loop forget its mailbox; calls in flight fail for this reason."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # an unfinished coroutine was collected after its loop: no call waits
            return
        mailbox = self._known.pop(loop, _nothing)()
        if mailbox is not None:
            mailbox.fail_all(reason, detail)
            loop.remove_reader(mailbox.fileno())
        self._last = None, _nothing


def _nothing() -> None:
    return None
