"""`jitney.run`: the engine in threads of this process, the models in separate workers."""

import os
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never

from jitney.embedded import native
from jitney.embedded.classes import refuse_while_importing, target_of
from jitney.embedded.handles import Models, SyncModels, not_entered
from jitney.embedded.mailboxes import LoopMailboxes
from jitney.errors import EngineFailed, TargetError
from jitney.front.settings import Settings, compose, read_layers

if TYPE_CHECKING:
    from jitney import _core

Target = str | Callable[..., Any]

_BROKEN = 70
"""The code of a fault of jitney's own; any other is something that the user can do something about."""


class _Starts:
    """Settings that both kinds of engine get."""

    def __getattr__(self, name: str) -> Never:
        raise not_entered(name, "jitney.run(…)")

    def __init__(
        self,
        targets: tuple[Target, ...],
        options: Mapping[str, object] | None,
        config: str | None,
        log_level: str,
        drain_timeout_s: float,
    ) -> None:
        refuse_while_importing()
        if not targets:
            raise TargetError("name what to run: a file.py, package.module:Name, a class, or a ready-made model")
        names = [target if isinstance(target, str) else target_of(target) for target in targets]
        flags: dict[str, object] = {"log_level": log_level, "drain_timeout_s": drain_timeout_s, "listen": ()}
        overrides = read_layers(config, os.environ, [])
        for key, value in (options or {}).items():
            overrides.give(key, value)
        self._settings: Settings = compose(names, flags, overrides, None, None)
        self._engine: _core.Engine | None = None

    def _start(self) -> "_core.Engine":
        if self._engine is not None:
            raise EngineFailed("this engine has been started already; each one is entered once")
        settings = self._settings.to_json(path=[place for place in sys.path if place])
        self._engine = native.engine(settings)
        return self._engine


def _check(ended: tuple[int, str] | None) -> None:
    """Raise what a start or an end ended with."""
    if ended is not None:
        code, text = ended
        raise EngineFailed(text) if code == _BROKEN else TargetError(text)


class Run(_Starts):
    """An engine that runs while `async with` lasts."""

    _mailboxes: LoopMailboxes

    async def __aenter__(self) -> Models:
        engine = self._start()
        self._mailboxes = LoopMailboxes()
        try:
            _check(await self._mailboxes.wait_for(engine.ready()))
            return Models(engine, self._mailboxes)
        except BaseException:
            self._mailboxes.close("draining", "the engine has ended")
            engine.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._engine is None or self._engine.is_forked():
            return
        try:
            ended = await self._mailboxes.wait_for(self._engine.close())
        finally:
            self._mailboxes.close("draining", "the engine has ended")
            self._engine.release()
        if error is None:
            _check(ended)


class RunSync(_Starts):
    """An engine that runs while `with` lasts."""

    def __enter__(self) -> SyncModels:
        engine = self._start()
        try:
            _check(engine.ready().wait())
            return SyncModels(engine)
        except BaseException:
            engine.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._engine is None or self._engine.is_forked():
            return
        try:
            ended = self._engine.close().wait()
        finally:
            self._engine.release()
        if error is None:
            _check(ended)


def run(
    *targets: Target,
    options: Mapping[str, object] | None = None,
    config: str | None = None,
    log_level: str = "warn",
    drain_timeout_s: float = 30.0,
) -> Run:
    """Run models in workers, with the engine in threads of this process: `async with jitney.run("model.py") as models`.

    A target is what `jitney serve` takes, or a class or function with `@jitney.deployment`. `options` are those of
    deployments, above all other layers: {"embedder.max_batch_size": 8, "embedder.init.path": "weights.bin"}.
    `config` is the file of options, `jitney.toml` if it is there. TargetError if a model cannot be loaded.
    """
    return Run(targets, options, config, log_level, drain_timeout_s)


def run_sync(
    *targets: Target,
    options: Mapping[str, object] | None = None,
    config: str | None = None,
    log_level: str = "warn",
    drain_timeout_s: float = 30.0,
) -> RunSync:
    """Do as `run` does, for threads: `with jitney.run_sync("model.py") as models`; calls wait for their answers."""
    return RunSync(targets, options, config, log_level, drain_timeout_s)
