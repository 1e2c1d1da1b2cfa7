"""`jitney.serve`: what `jitney serve` does, from a program of one's own."""

import os
import signal
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final, Unpack

from jitney.config.keywords import ServerKeywords
from jitney.embedded.run import Target, import_path, program_settings
from jitney.errors import EngineFailed
from jitney.front.launch import serve as serve_settings
from jitney.front.settings import API_KEYS

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(
    *targets: Target,
    host: str | None = None,
    port: int | None = None,
    options: Mapping[str, object] | None = None,
    config: str | None = None,
    **server: Unpack[ServerKeywords],
) -> None:
    """Serve models over HTTP until SIGINT or SIGTERM, as `jitney serve` does: `jitney.serve(Embedder, port=8000)`.

    A target is what `jitney serve` takes, or a class or function with `@jitney.deployment`. Call this under
    `if __name__ == "__main__":`, because workers import the program again. `host` and `port` are short for one `listen`
    (default: 127.0.0.1:8000). `options` are those of deployments: {"embedder.replicas": 2}. All other keywords are
    options of the server. It returns after a clean shutdown, and raises SystemExit with the exit code of `jitney serve`
    otherwise. A process serves once, and not after an engine ran in it.
    """
    if threading.current_thread() is not threading.main_thread():
        raise EngineFailed("jitney.serve handles signals, so call it in the main thread; jitney.run works in any")
    keys = os.environ.get(API_KEYS)
    settings = program_settings(targets, options, config, server, host=host, port=port, api_keys=keys)
    with _restored():
        try:
            code = serve_settings(settings, path=import_path())
        except RuntimeError as error:
            raise EngineFailed(f"jitney.serve: {error}") from None
    if code != 0:
        raise SystemExit(code)


@contextmanager
def _restored() -> Generator[None]:
    """Give the program its signal handlers and its environment back."""
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    environment = dict(os.environ)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for name in os.environ.keys() | environment.keys():
            if name not in environment:
                del os.environ[name]
            elif os.environ.get(name) != environment[name]:
                os.environ[name] = environment[name]
