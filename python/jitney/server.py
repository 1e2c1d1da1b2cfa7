"""From what the command line was told to the settings of the Rust server. Never imports a target."""

import contextlib
import difflib
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from jitney.config import Overrides, ServerOptions, read_overrides, resolve_server, server_options
from jitney.context import available_cores
from jitney.errors import ConfigError, TargetError
from jitney.models import READY_MADE

API_KEYS = "JITNEY_API_KEYS"
CLIENT_KEY = "JITNEY_API_KEY"
"""What a program sends that calls a server with keys."""
DEFAULT_FILE = "jitney.toml"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8000


@dataclass(frozen=True, slots=True)
class Settings:
    """All that the Rust server needs to know."""

    server: ServerOptions
    server_sources: Mapping[str, str]
    targets: Sequence[str]
    overrides: Overrides
    api_keys: str | None = field(default=None, repr=False)
    """What JITNEY_API_KEYS said."""

    def to_json(self, path: Sequence[str] = (), *, renews: bool = False) -> str:
        """As `_core.serve` takes it; `path` are folders in which workers look for modules.

        `renews` says that SIGUSR1 will tell when their files have changed.
        """
        overrides = json.loads(self.overrides.to_json())
        return json.dumps(
            {
                "server": self.server.to_dict(),
                "targets": [{"target": target, "overrides": overrides} for target in self.targets],
                "server_sources": self.server_sources,
                "override_names": self.overrides.names(),
                "environment_names": self.overrides.environment_names(),
                "api_keys": self.api_keys,
                "has_client_key": bool(os.environ.get(CLIENT_KEY)),
                "renews": renews,
                "python": sys.executable,
                "cores": available_cores(),
                "path": list(path),
            }
        )


def serve(settings: Settings, *, renews: bool = False) -> int:
    """Hand this process to the Rust server; returns the exit code. `renews` as `Settings.to_json` has it."""
    for descriptor in range(3):  # closed ones would be taken by sockets, which would then be written to as stderr
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            continue
        os.open(os.devnull, os.O_RDWR)
    # Read when the Rust side is loaded. With huge pages an idle connection cost 28 KB instead of 16: a buffer of which
    # 300 bytes are used then takes all of its memory.
    os.environ.setdefault("MIMALLOC_ALLOW_THP", "0")
    # What is larger goes back to the kernel at once: of one answer of 400 MB as much would stay with the allocator.
    os.environ.setdefault("MIMALLOC_ARENA_MAX_OBJECT_SIZE", "32MiB")
    # Inherited by the workers, so that what they print is in the same format.
    os.environ["JITNEY_LOG_FORMAT"] = settings.server.log_format
    # Models have no business with the keys of clients.
    os.environ.pop(API_KEYS, None)
    from jitney import _core  # noqa: PLC0415 - only serving needs Rust

    # Rust takes the signals; the interpreter's own handler would still run after it and fail a clean drain.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _core.serve(settings.to_json(renews=renews))


def compose(  # noqa: PLR0913 -- what the command line and the environment said, each on its own
    targets: Sequence[str],
    flags: Mapping[str, object],
    overrides: Overrides,
    host: str | None,
    port: int | None,
    *,
    api_keys: str | None = None,
) -> Settings:
    """Resolve the server's options and find the targets; whatever can be known to be wrong by now is refused here."""
    given = dict(flags)
    if host is not None or port is not None:
        listen = given.get("listen", ())
        address = f"tcp:{_bracketed(host or DEFAULT_HOST)}:{DEFAULT_PORT if port is None else port}"
        given["listen"] = [*(listen if isinstance(listen, Sequence) else ()), address]
    server = resolve_server(given, overrides)
    for where in (*server.options.listen, *server.options.listen_programs):
        check_listen(where)
    found = [find_target(target) for target in targets]
    for target in found:
        if found.count(target) > 1:
            raise TargetError(f"the target {target!r} is given twice; to have two copies of it, set replicas=2")
    return Settings(server.options, server.sources, found, overrides, api_keys)


def read_layers(file: str | None, environ: Mapping[str, str], sets: Sequence[str]) -> Overrides:
    """Read every layer above the decorator: `jitney.toml` if it is there, the environment, `--set`."""
    if file is None and Path(DEFAULT_FILE).is_file():
        file = DEFAULT_FILE
    return read_overrides(file, _server_variables(environ), sets)


_OF_A_SERVICE: Final = re.compile("(tcp|udp|sctp)://")
"""What Kubernetes sets JITNEY_PORT to, in every pod beside a service of the name `jitney`."""


def _server_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """`JITNEY_LOG_LEVEL` is short for `JITNEY_SERVER__LOG_LEVEL`, JITNEY_HOST and JITNEY_PORT for a place to listen."""
    spelled = dict(environ)
    for name in server_options():
        text = spelled.pop(f"JITNEY_{name.upper()}", None)
        if text is not None:
            spelled.setdefault(f"JITNEY_SERVER__{name.upper()}", text)
    host, port = spelled.pop("JITNEY_HOST", None), spelled.pop("JITNEY_PORT", None)
    if port is not None and _OF_A_SERVICE.match(port):
        port = None
    elif port is not None and not (port.isascii() and port.isdecimal()):
        raise ConfigError(f"JITNEY_PORT is {port!r}; it is a number from 1 to 65535, or 0 for any")
    if host is not None or port is not None:
        address = f"tcp:{_bracketed(host or DEFAULT_HOST)}:{port or DEFAULT_PORT}"
        spelled.setdefault("JITNEY_SERVER__LISTEN", address)
    return spelled


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def check_listen(where: str) -> None:
    """Refuse what is no place to listen, before anything is started."""
    kind, _, rest = where.partition(":")
    host, _, port = rest.rpartition(":")
    if kind == "tcp" and host and port.isdecimal() and int(port) <= 65_535:
        return
    if kind == "unix" and rest:
        return
    raise ConfigError(f"cannot listen on {where!r}: write tcp:HOST:PORT or unix:PATH; PORT is 1 to 65535, or 0 for any")


def find_target(target: str) -> str:
    """Find what workers will import, and return it as they take it; imports nothing."""
    ready_made = READY_MADE.get(target)
    if ready_made is not None:
        if ready_made.missing:
            missing = ", ".join(ready_made.missing)
            raise TargetError(f"the model {target} needs {missing}, which is not installed: {ready_made.install}")
        return ready_made.target
    place, _, name = target.partition(":")
    if name and not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise TargetError(f"{target!r} is no target: {name!r} is not the name of a class, function or deployment")
    if place.endswith(".ipynb"):
        raise TargetError(
            f"{place!r} is a notebook; notebooks cannot be served; export it: jupyter nbconvert --to script {place}"
        )
    if place.endswith(".py") or os.sep in place:
        _find_file(target, place)
    else:
        _find_package(target, place)
    return target


def _find_file(target: str, place: str) -> None:
    path = Path(place)
    if path.is_file():
        return
    if path.is_dir():
        raise _a_folder(target, path)
    there = sorted(str(near) for near in path.parent.glob("*.py")) if path.parent.is_dir() else []
    raise TargetError(f"there is no file {place!r}{_hint(place, there)}")


def _a_folder(target: str, folder: Path) -> TargetError:
    inside = sorted(folder.glob("*.py"))
    return TargetError(
        f"{target!r} is a folder; name a file in it, such as {inside[0] if inside else folder / 'model.py'}"
    )


def _find_package(target: str, place: str) -> None:
    top, folder = place.partition(".")[0], Path(place)
    if folder.is_dir() and not (folder / "__init__.py").is_file():
        raise _a_folder(target, folder)
    if not all(part.isidentifier() for part in place.split(".")):
        raise TargetError(
            f"{target!r} is no target: name a file.py, file.py:Name, package.module:Name or a ready-made model"
        )
    # A worker is started with `-m`, so it finds modules of the current folder too.
    if top in sys.builtin_module_names or PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is not None:
        return
    known = [*READY_MADE, *sorted(str(near) for near in Path().glob("*.py"))]
    raise TargetError(f"there is no ready-made model and no package {top!r}{_hint(place, known)}; see `jitney models`")


def _hint(given: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(given, [*known, *(name.removesuffix(".py") for name in known)], n=1)
    if not near:
        return ""
    match = near[0] if near[0] in known else f"{near[0]}.py"
    return f"; did you mean {match!r}?"
