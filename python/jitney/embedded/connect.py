"""`jitney.connect`: the models of a server that other programs share, called as if they were in this one."""

import asyncio
import logging
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Never

from jitney.embedded import native
from jitney.embedded.handles import Models, SyncModels, not_entered
from jitney.embedded.mailboxes import LoopMailboxes
from jitney.errors import ConfigError, Disconnected
from jitney.front.settings import CLIENT_KEY

if TYPE_CHECKING:
    from jitney import _core

_LOG = logging.getLogger("jitney")
_SILENT_S = 1.0
"""How long a program waits for a server until the log says so."""


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

    @contextmanager
    def _log_wait(self) -> Generator[None]:
        """Log once that a connection is waited for, if that takes long: else a wrong address looks like a hang."""
        message = "still waiting for the models of the server at %s, for at most %g s (timeout_s): is it running?"
        timer = threading.Timer(_SILENT_S, _LOG.warning, (message, self._place, self._timeout_s))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _check(ended: tuple[int, str] | None) -> None:
    if ended is not None:
        raise Disconnected(ended[1])


_CLOSED = "the connection was closed by this program"


class Connect(_Dials):
    """A connection that lasts while `async with` does, or from `start` to `close`."""

    def __init__(self, place: str, key: str | None, timeout_s: float) -> None:
        super().__init__(place, key, timeout_s)
        self._remote: _core.Remote | None = None
        self._models: Models | None = None
        self._mailboxes = LoopMailboxes()
        self._starting = asyncio.Lock()

    async def start(self) -> Models:
        """Connect; of an open connection return the models. Any task of the event loop may call it, for each request.

        Several tasks that call it at once get the same connection.
        """
        async with self._starting:
            if self._models is None:
                self._models = await self._connect()
            return self._models

    async def _connect(self) -> Models:
        self._mailboxes = LoopMailboxes()
        self._remote = self._dial()
        try:
            with self._log_wait():
                _check(await self._mailboxes.wait_for(self._remote.ready(self._timeout_s)))
            return Models(self._remote, self._mailboxes)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the connection; calls in flight fail with Disconnected. A second time it does nothing."""
        remote, self._remote, self._models = self._remote, None, None
        if remote is not None:
            self._mailboxes.close("disconnected", _CLOSED)
            remote.release()

    async def __aenter__(self) -> Models:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


@dataclass(frozen=True, slots=True)
class _Open:
    """A connection, and the process that made it: a fork does not have its threads."""

    remote: "_core.Remote"
    models: SyncModels
    process: int


class ConnectSync(_Dials):
    """A connection that lasts while `with` does, or from `start` to `close`."""

    def __init__(self, place: str, key: str | None, timeout_s: float) -> None:
        super().__init__(place, key, timeout_s)
        self._open: _Open | None = None
        self._locks: dict[int, threading.Lock] = {}
        """By process: a thread that does not exist in a fork may hold the lock of the parent."""

    def start(self) -> SyncModels:
        """Connect; of an open connection return the models. Any thread may call it, for each request.

        A process that was forked from one with a connection gets its own connection.
        """
        process = os.getpid()
        opened = self._open
        if opened is not None and opened.process == process:
            return opened.models
        with self._locks.setdefault(process, threading.Lock()):
            opened = self._open
            if opened is None or opened.process != process:
                opened = self._open = self._connect(process)
            return opened.models

    def _connect(self, process: int) -> _Open:
        remote = self._dial()
        try:
            with self._log_wait():
                _check(remote.ready(self._timeout_s).wait())
            return _Open(remote, SyncModels(remote), process)
        except BaseException:
            remote.release()
            raise

    def close(self) -> None:
        """End the connection; calls in flight fail with Disconnected. A second time it does nothing."""
        opened, self._open = self._open, None
        if opened is not None and opened.process == os.getpid():
            opened.remote.release()

    def __enter__(self) -> SyncModels:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def connect(place: str, *, key: str | None = None, timeout_s: float = 30.0) -> Connect:
    """Call the models of a server: `async with jitney.connect("unix:/run/models.sock") as models`.

    `place` is one of the server's `--listen-programs`: unix:PATH, or tcp:HOST:PORT, which needs a `key` (default:
    JITNEY_CLIENT_KEY). Disconnected if nothing answers within `timeout_s`. Later a lost server is dialled again with
    back-off; until it is back, calls fail with Disconnected at once.

    Without a block: `connection = jitney.connect(…)`, `models = await connection.start()`, `await connection.close()`.
    """
    return Connect(place, key, timeout_s)


def connect_sync(place: str, *, key: str | None = None, timeout_s: float = 30.0) -> ConnectSync:
    """Do as `connect` does, for threads: `with jitney.connect_sync(…) as models`; calls wait for their answers.

    `start` may be called for each request: it connects once per process, also after a fork.
    """
    return ConnectSync(place, key, timeout_s)
