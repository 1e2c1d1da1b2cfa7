"""`jitney.run`: the engine in threads of this process, the models in separate workers."""

import asyncio
import atexit
import os
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, TypeVar

from jitney.deployments.classes import refuse_while_importing, target_of
from jitney.deployments.composed.composition import Composed
from jitney.embedded import native
from jitney.embedded.handles import Models, SyncModels, not_entered
from jitney.embedded.mailboxes import LoopMailboxes
from jitney.errors import EngineFailed, TargetError
from jitney.front.settings import Settings, compose, read_layers

if TYPE_CHECKING:
    from jitney import _core

_Models = TypeVar("_Models", Models, SyncModels)
Target = str | Callable[..., Any] | Composed

_BROKEN = 70
"""The code of a fault of jitney's own; any other is something that the user can do something about."""


def program_settings(  # noqa: PLR0913 -- what a program gives, each on its own
    targets: tuple[Target, ...],
    options: Mapping[str, object] | None,
    config: str | None,
    server: Mapping[str, object],
    *,
    host: str | None = None,
    port: int | None = None,
    api_keys: str | None = None,
) -> Settings:
    """Compose the settings of an engine or a server that a program starts; `server` are options of the server."""
    refuse_while_importing()
    if not targets:
        raise TargetError("name what to run: a file.py, package.module:Name, a class, or a ready-made model")
    names = [target if isinstance(target, str) else target_of(target) for target in targets]
    overrides = read_layers(config, os.environ, [])
    for key, value in (options or {}).items():
        overrides.give(key, value)
    return compose(names, server, overrides, host, port, api_keys=api_keys, place_of="{}=".format)


def import_path() -> list[str]:
    """Return the folders in which workers look for modules of this program."""
    return [place for place in sys.path if place]


class _Engine:
    """What both kinds of engine have: settings, one start, one end."""

    def __getattr__(self, name: str) -> Never:
        raise not_entered(name, "jitney.run(…)")

    def __init__(
        self,
        targets: tuple[Target, ...],
        options: Mapping[str, object] | None,
        config: str | None,
        server: Mapping[str, object],
    ) -> None:
        given = {name: value for name, value in server.items() if value is not None}
        self._settings: Final = program_settings(targets, options, config, {**given, "listen": ()})
        self._core: _core.Engine | None = None
        self._is_closed = False

    def _launch(self) -> "_core.Engine":
        if self._is_closed:
            raise EngineFailed("this engine has been closed; make another one with jitney.run")
        self._core = native.engine(self._settings.to_json(path=import_path()))
        _OPEN.append(self)
        return self._core

    def _take(self) -> "_core.Engine | None":
        """Return what is to be closed, once; None if there is nothing."""
        engine, self._core = self._core, None
        self._is_closed = True
        if self in _OPEN:
            _OPEN.remove(self)
        return None if engine is None or engine.is_forked() else engine

    def _earlier(self) -> "list[_Engine]":
        """Return open engines that a notebook or a prompt started for the same targets: a cell is run again."""
        if not hasattr(sys, "ps1"):
            return []
        return [engine for engine in _OPEN if engine._settings.targets == self._settings.targets]


_OPEN: Final[list[_Engine]] = []
"""The engines of this program that run."""


@atexit.register
def close_all() -> None:
    """Close the engines that are still open when the interpreter ends."""
    for engine in reversed(_OPEN.copy()):
        _end(engine._take())  # pyright: ignore[reportPrivateUsage]


def _end(engine: "_core.Engine | None") -> tuple[int, str] | None:
    """Close an engine and wait for its end on this thread."""
    if engine is None:
        return None
    try:
        return engine.close().wait()
    finally:
        engine.release()


def _check(ended: tuple[int, str] | None) -> None:
    """Raise what a start or an end ended with."""
    if ended is not None:
        code, text = ended
        raise EngineFailed(text) if code == _BROKEN else TargetError(text)


def _started(models: _Models | None) -> _Models:
    """Return the models of an engine that has been started, unless it still loads them."""
    if models is None:
        raise EngineFailed(
            "this engine is being started; wait until the first call of start() returns, and use its models"
        )
    return models


class Engine(_Engine):
    """An engine that runs while `async with` lasts, or from `start` to `close`."""

    _mailboxes: LoopMailboxes
    _models: Models | None = None

    async def start(self) -> Models:
        """Start it and load the models; of a running engine return the models.

        EngineFailed while an earlier `start` has not returned. In a notebook or at a prompt this closes the engine
        that was started before for the same targets.
        """
        if self._core is not None:
            return _started(self._models)
        for earlier in self._earlier():
            if isinstance(earlier, Engine):
                await earlier._close()
            else:
                await asyncio.to_thread(_end, earlier._take())
        engine = self._launch()
        self._mailboxes = LoopMailboxes()
        try:
            _check(await self._mailboxes.wait_for(engine.ready()))
            self._models = Models(engine, self._mailboxes)
        except BaseException:
            self._take()
            self._mailboxes.close("draining", "the engine has ended")
            engine.release()
            raise
        return self._models

    async def close(self) -> None:
        """Refuse new calls, finish those in flight and stop the workers. A second time it does nothing."""
        _check(await self._close())

    async def _close(self) -> tuple[int, str] | None:
        engine = self._take()
        if engine is None:
            return None
        try:
            return await self._mailboxes.wait_for(engine.close())
        finally:
            self._mailboxes.close("draining", "the engine has ended")
            engine.release()

    async def __aenter__(self) -> Models:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended = await self._close()
        if error is None:
            _check(ended)


class SyncEngine(_Engine):
    """An engine that runs while `with` lasts, or from `start` to `close`."""

    _models: SyncModels | None = None

    def start(self) -> SyncModels:
        """Start it and load the models; of a running engine return the models.

        EngineFailed while an earlier `start` has not returned. In a notebook or at a prompt this closes the engine
        that was started before for the same targets.
        """
        if self._core is not None:
            return _started(self._models)
        for earlier in self._earlier():
            _end(earlier._take())
        engine = self._launch()
        try:
            _check(engine.ready().wait())
            self._models = SyncModels(engine)
        except BaseException:
            self._take()
            engine.release()
            raise
        return self._models

    def close(self) -> None:
        """Refuse new calls, finish those in flight and stop the workers. A second time it does nothing."""
        _check(_end(self._take()))

    def __enter__(self) -> SyncModels:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended = _end(self._take())
        if error is None:
            _check(ended)


def run(
    *targets: Target,
    options: Mapping[str, object] | None = None,
    config: str | None = None,
    log_level: str = "warn",
    drain_timeout_s: float = 30.0,
    ray_address: str | None = None,
) -> Engine:
    """Run models in workers, with the engine in threads of this process: `async with jitney.run("model.py") as models`.

    Or, without a block: `engine = jitney.run("model.py")`, `models = await engine.start()`, `await engine.close()`. The
    engine is closed at the latest when the interpreter ends.

    A target is what `jitney serve` takes, or a class or function with `@jitney.deployment`. `options` are those of
    deployments, above all other layers: {"embedder.max_batch_size": 8, "embedder.init.path": "weights.bin"}.
    `config` is the file of options, `jitney.toml` if it is there. `ray_address` is a Ray cluster in which the replicas
    run: "HOST:PORT", or "auto" for the one of this machine. TargetError if a model cannot be loaded.
    """
    server = {"log_level": log_level, "drain_timeout_s": drain_timeout_s, "ray_address": ray_address}
    return Engine(targets, options, config, server)


def run_sync(
    *targets: Target,
    options: Mapping[str, object] | None = None,
    config: str | None = None,
    log_level: str = "warn",
    drain_timeout_s: float = 30.0,
    ray_address: str | None = None,
) -> SyncEngine:
    """Do as `run` does, for threads: `with jitney.run_sync("model.py") as models`; calls wait for their answers."""
    server = {"log_level": log_level, "drain_timeout_s": drain_timeout_s, "ray_address": ray_address}
    return SyncEngine(targets, options, config, server)
