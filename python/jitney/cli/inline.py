"""`jitney serve --inline`: the server and the model in one process, for a debugger.

The model runs on the main thread, which has the terminal; the Rust server runs on its threads. Requests, batches
and answers take the same way as with a worker process.
"""

import argparse
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jitney.context import available_cores
from jitney.errors import ConfigError
from jitney.front.launch import prepare
from jitney.front.settings import Settings
from jitney.worker.process import LEAVES_WITHIN_S, Spec, Worker, set_threads

if TYPE_CHECKING:
    from jitney._core import InlineServer

_LONG_S: Final = "31536000"
"""The longest time that an option may say, a year: a model that stands in a debugger does not hang."""
_REQUEST_TIMEOUT_S: Final = "3600"


def give_options(arguments: argparse.Namespace) -> None:
    """Set the options of a deployment that is debugged: one replica, and nothing is late."""
    if len(arguments.targets) > 1:
        raise ConfigError(f"--inline serves one target, not {len(arguments.targets)}: {', '.join(arguments.targets)}")
    if (arguments.replicas or "1") != "1":
        raise ConfigError(f"--inline runs one replica, in this process, not {arguments.replicas}: leave --replicas out")
    if arguments.min_replicas or arguments.max_replicas:
        raise ConfigError("--inline runs one replica, in this process: leave --min-replicas and --max-replicas out")
    arguments.replicas = arguments.min_ready_replicas = "1"
    arguments.batch_timeout_s = arguments.load_timeout_s = _LONG_S
    arguments.request_timeout_s = arguments.request_timeout_s or _REQUEST_TIMEOUT_S
    arguments.stream_timeout_s = arguments.stream_timeout_s or _REQUEST_TIMEOUT_S


def serve(settings: Settings) -> int:
    """Serve until Ctrl-C or SIGTERM; returns the exit code."""
    prepare(settings)
    set_threads(available_cores(), os.environ)
    from jitney import _core  # noqa: PLC0415 - only serving needs Rust

    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as a worker has it
    if "PYTHONBREAKPOINT" not in os.environ:
        sys.breakpointhook = _breakpoint
    server = _core.InlineServer(settings.to_json())
    codes: list[int] = []
    thread = threading.Thread(target=_run, args=(server, codes), name="jitney-serve")
    thread.start()
    while (text := server.next_worker()) is not None:
        spec = Spec.read(text)
        try:
            link = _core.Link(spec.address, spec.token, ends_process=False)
            Worker(link, spec, _core.Results, as_json=settings.server.log_format == "json", is_inline=True).run()
        except ConnectionError:
            pass  # the server has ended meanwhile
        finally:
            server.ended(spec.worker)
    thread.join()
    return codes[0]


def _run(server: "InlineServer", codes: list[int]) -> None:
    codes.append(server.run())
    # The main thread may be in the model, which nothing interrupts.
    alarm = threading.Timer(LEAVES_WITHIN_S, os._exit, codes)
    alarm.daemon = True
    alarm.start()


def _breakpoint(*arguments: Any, **named: Any) -> None:
    """Stop in a debugger that leaves Ctrl-C alone: signals belong to the server."""
    import pdb  # noqa: PLC0415 - what this is for

    pdb.Pdb(*arguments, nosigint=True, **named).set_trace(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
