"""Serve models over HTTP until Ctrl-C or SIGTERM.

A TARGET is file.py, file.py:Name, package.module, package.module:Name or the name of a ready-made model.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

import jitney
from jitney.cli.options import add_layers, add_server_options, given_layers, given_server_options
from jitney.cli.watch import check_installed, python_changes
from jitney.deployments.fresh import FOLDERS_VARIABLE, INSTALLED
from jitney.errors import ConfigError
from jitney.front.launch import serve
from jitney.front.settings import API_KEYS, DEFAULT_FILE, Settings, compose

HIGHEST_PORT = 65_535
PARENT_VARIABLE = "JITNEY_RELOAD_PARENT"
"""Holds the process id of the parent that watches files, under `--reload`."""
_NO_FILE = ("built-in", "frozen")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add targets and options."""
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="what to serve; several at once are fine")
    parser.add_argument("--host", help="listen on this address (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, help="listen on this port (default: 8000; 0 takes a free one)")
    parser.add_argument(
        "--reload", action="store_true", help="take new workers when Python files of the targets change"
    )
    parser.add_argument(
        "--inline", action="store_true", help="run the model in this process, so that breakpoint() works: to debug it"
    )
    add_layers(parser)
    add_server_options(parser)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"expected 1 to {HIGHEST_PORT}, or 0 for any free port, not {text!r}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Serve, or watch a child that does."""
    if arguments.inline:
        if arguments.reload:
            raise ConfigError("--inline and --reload do not work together: leave one of them out")
        from jitney.cli import inline  # noqa: PLC0415 - it loads the worker, which a front does not need

        inline.give_options(arguments)
        return inline.serve(_settings(arguments))
    if arguments.reload:
        return _reload(arguments)
    renews = _follow_parent()
    return serve(_settings(arguments), renews=renews, reread=lambda: _settings(arguments))


def _settings(arguments: argparse.Namespace) -> Settings:
    overrides = given_layers(arguments)
    overrides.check_flags(arguments.targets, "NAME")
    flags, keys = given_server_options(arguments), os.environ.get(API_KEYS)
    return compose(arguments.targets, flags, overrides, arguments.host, arguments.port, api_keys=keys)


def _follow_parent() -> bool:
    """Under `--reload`, end when the watching parent does, however it ends."""
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None:
        return False
    from jitney import _core  # noqa: PLC0415 - only here

    _core.adopt_parent(int(parent))
    return True


def _reload(arguments: argparse.Namespace) -> int:
    from jitney.cli.reload import Reloader  # noqa: PLC0415 - it starts processes, which a front leaves to Rust

    check_installed()
    _settings(arguments)  # reports a wrong command line once; a child would report it again after each change
    folders: set[Path] = set()
    for target in arguments.targets:
        found = [folder.resolve() for folder in watched(target) if folder.is_dir()]
        folders.update(found)
        if not found:
            print(f"jitney: --reload watches no files of {target}", file=sys.stderr)
    own = [argument for argument in _own_arguments() if argument != "--reload"]
    # Without this folder in front of the other modules: a `json.py` next to the model would replace Python's.
    command = [sys.executable, "-P", "-m", "jitney", *own]
    environment = {
        FOLDERS_VARIABLE: os.pathsep.join(map(str, sorted(folders))),
        PARENT_VARIABLE: str(os.getpid()),
    }
    configuration = Path(arguments.config or DEFAULT_FILE)
    return Reloader(command, python_changes(sorted(folders)), configuration, environment).run()


def _own_arguments() -> Sequence[str]:
    return sys.argv[1:]


def watched(target: str) -> list[Path]:
    """Return the folders of this target's files; none if it is installed or ready-made, because those do not change."""
    place = target.partition(":")[0]
    if place.endswith(".py"):
        return [Path(place).parent]
    name = place.partition(".")[0]
    # As a worker finds it: here first, then wherever modules are. What was installed with `-e` has its own finders.
    spec = PathFinder.find_spec(name, [str(Path.cwd()), *sys.path]) or _found_by_any(name)
    if spec is None or name == jitney.__name__:
        return []
    found = spec.submodule_search_locations  # a package without __init__.py may be in several folders
    folders = [Path(folder) for folder in found] if found is not None else [Path(spec.origin or "").parent]
    return [folder for folder in folders if spec.origin not in _NO_FILE and not _is_installed(folder)]


def _found_by_any(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except (ImportError, ValueError):
        return None


def _is_installed(folder: Path) -> bool:
    return folder.is_relative_to(Path(os.__file__).parent) or not INSTALLED.isdisjoint(folder.parts)
