"""Serve models over HTTP until Ctrl-C or SIGTERM.

A TARGET is file.py, file.py:Name, package.module, package.module:Name or the name of a ready-made model.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from jitney.cli.options import add_layers, add_server_options, given_server_options
from jitney.cli.reload import PARENT_VARIABLE, Reloader
from jitney.server import API_KEYS, DEFAULT_FILE, Settings, compose, read_layers, serve

HIGHEST_PORT = 65_535
HELP = "serve models over HTTP"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add targets and options."""
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="what to serve; several at once are fine")
    parser.add_argument("--host", help="listen on this address (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, help="listen on this port (default: 8000; 0 takes a free one)")
    parser.add_argument(
        "--reload", action="store_true", help="take new workers when Python files of the targets change"
    )
    add_layers(parser)
    add_server_options(parser)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"expected 1 to {HIGHEST_PORT}, or 0 for any free port, not {text!r}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Serve, or watch a child that does."""
    if arguments.reload:
        return _reloader(arguments).run()
    renews = _follow_parent()
    return serve(_settings(arguments), renews=renews)


def _settings(arguments: argparse.Namespace) -> Settings:
    overrides = read_layers(arguments.config, os.environ, arguments.sets)
    flags, keys = given_server_options(arguments), os.environ.get(API_KEYS)
    return compose(arguments.targets, flags, overrides, arguments.host, arguments.port, api_keys=keys)


def _follow_parent() -> bool:
    """Under `--reload`, which is told, end when the watching parent does, however it ends."""
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None:
        return False
    from jitney import _core  # noqa: PLC0415 - only here

    _core.adopt_parent(int(parent))
    return True


def _reloader(arguments: argparse.Namespace) -> Reloader:
    _settings(arguments)  # what is wrong on the command line is said at once, not by a child that is started again
    folders = sorted({folder for target in arguments.targets if (folder := watched(target)) is not None})
    command = [sys.executable, "-m", "jitney", *(argument for argument in _own_arguments() if argument != "--reload")]
    return Reloader(command, folders, [Path(arguments.config or DEFAULT_FILE)])


def _own_arguments() -> Sequence[str]:
    return sys.argv[1:]


def watched(target: str) -> Path | None:
    """Name the folder whose files matter to this target; a ready-made model has none."""
    place = target.partition(":")[0]
    if place.endswith(".py"):
        return Path(place).parent
    spec = PathFinder.find_spec(place.partition(".")[0], [str(Path.cwd())])
    if spec is None or spec.origin is None:
        return None  # installed, or ready-made: nobody edits it
    return Path(spec.origin).parent
