"""`jitney.connect`: the models of a server that other programs share, called as if they were in this one."""

import os
from types import TracebackType
from typing import TYPE_CHECKING, Never

from jitney.embedded import native
from jitney.embedded.handles import Models, SyncModels, not_entered
from jitney.embedded.mailboxes import LoopMailboxes
from jitney.errors import ConfigError, Disconnected
from jitney.front.settings import CLIENT_KEY

if TYPE_CHECKING:
    from jitney import _core


class _Dials:
    def __init__(self, place: str, key: str | None, timeout_s: float) -> None:
        kind, _, rest = place.partition(":")
        host, _, port = rest.rpartition(":")
        if not (kind == "unix" and rest) and not (kind == "tcp" and host and port.isdecimal()):
            raise ConfigError(f"cannot connect to {place!r}: write unix:PATH or tcp:HOST:PORT")
        self._place = place
        self._key = os.environ.get(CLIENT_KEY) if key is None else key
        self._timeout_s = timeout_s

    def __getattr__(self, name: str) -> Never:
        raise not_entered(name, "jitney.connect(…)")

    def _dial(self) -> "_core.Remote":
        return native.remote(self._place, self._key)


def _check(ended: tuple[int, str] | None) -> None:
    if ended is not None:
        raise Disconnected(ended[1])


class Connect(_Dials):
    """A connection that lasts while `async with` does."""

    async def __aenter__(self) -> Models:
        self._mailboxes = LoopMailboxes()
        self._remote = self._dial()
        try:
            _check(await self._mailboxes.wait_for(self._remote.ready(self._timeout_s)))
            return Models(self._remote, self._mailboxes)
        except BaseException:
            self._mailboxes.close("disconnected", "the connection was closed by this program")
            self._remote.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._mailboxes.close("disconnected", "the connection was closed by this program")
        self._remote.release()


class ConnectSync(_Dials):
    """A connection that lasts while `with` does."""

    def __enter__(self) -> SyncModels:
        self._remote = self._dial()
        try:
            _check(self._remote.ready(self._timeout_s).wait())
            return SyncModels(self._remote)
        except BaseException:
            self._remote.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._remote.release()


def connect(place: str, *, key: str | None = None, timeout_s: float = 30.0) -> Connect:
    """Call the models of a server: `async with jitney.connect("unix:/run/models.sock") as models`.

    `place` is one of the server's `--listen-programs`: unix:PATH, or tcp:HOST:PORT, which needs a `key` (default:
    JITNEY_CLIENT_KEY). Disconnected if nothing answers within `timeout_s`. Later a lost server is dialled again with
    back-off; until it is back, calls fail with Disconnected at once.
    """
    return Connect(place, key, timeout_s)


def connect_sync(place: str, *, key: str | None = None, timeout_s: float = 30.0) -> ConnectSync:
    """Do as `connect` does, for threads: `with jitney.connect_sync(…) as models`; calls wait for their answers."""
    return ConnectSync(place, key, timeout_s)
