"""The settings of the Rust server, composed of flags, environment and `jitney.toml`."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from jitney.config.layers import Overrides, ServerOptions, resolve_server, server_options
from jitney.config.reading import read_overrides
from jitney.context import available_cores
from jitney.errors import ConfigError, TargetError
from jitney.front.expected import expected_replicas
from jitney.front.targets import find_target

API_KEYS = "JITNEY_API_KEYS"
CLIENT_KEY = "JITNEY_CLIENT_KEY"
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

    def to_json(self, path: Sequence[str] = (), *, renews: bool = False, owns_process: bool = False) -> str:
        """As `_core.serve` takes it; `path` are folders in which workers look for modules.

        `renews` says that SIGUSR1 will report changes of their files, `owns_process` that the server alone runs here.
        """
        overrides = json.loads(self.overrides.to_json())
        return json.dumps(
            {
                "server": self.server.to_dict(),
                "targets": [
                    {"target": target, "overrides": overrides, "workers": workers, "shares": shares}
                    for target in self.targets
                    for workers, shares in [expected_replicas(target, self.overrides)]
                ],
                "server_sources": self.server_sources,
                "override_names": self.overrides.names(),
                "environment_names": self.overrides.environment_names(),
                "api_keys": self.api_keys,
                "has_client_key": bool(os.environ.get(CLIENT_KEY)),
                "renews": renews,
                "owns_process": owns_process,
                "python": sys.executable,
                "cores": available_cores(),
                "path": list(path),
            }
        )


def compose(  # noqa: PLR0913 -- what the command line and the environment said, each on its own
    targets: Sequence[str],
    flags: Mapping[str, object],
    overrides: Overrides,
    host: str | None,
    port: int | None,
    *,
    api_keys: str | None = None,
    place_of: Callable[[str], str] | None = None,
) -> Settings:
    """Resolve the server's options and find the targets; whatever can be known to be wrong by now is refused here.

    `place_of` returns the spelling of a flag, for messages (default: that of the command line).
    """
    given = dict(flags)
    if host is not None or port is not None:
        listen = given.get("listen", ())
        address = f"tcp:{_bracketed(host or DEFAULT_HOST)}:{DEFAULT_PORT if port is None else port}"
        given["listen"] = [*(listen if isinstance(listen, Sequence) else ()), address]
    server = resolve_server(given, overrides, place_of)
    for key in ("listen", "listen_programs"):
        for address in getattr(server.options, key):
            check_listen(address, server.places[key])
    if server.options.ray_address is not None:
        _check_ray(server.options, server.places)
    found = [find_target(target) for target in targets]
    for target in found:
        if found.count(target) > 1:
            raise TargetError(f"the target {target!r} is given twice; to have two copies of it, set replicas=2")
    return Settings(server.options, server.sources, found, overrides, api_keys)


def read_layers(file: str | None, environ: Mapping[str, str], sets: Sequence[str]) -> Overrides:
    """Read every layer above the decorator: `jitney.toml` if it is there, the environment, `--set`."""
    if file is None and Path(DEFAULT_FILE).is_file():
        file = DEFAULT_FILE
    variables, short = _server_variables(environ)
    return read_overrides(file, variables, sets, short)


_OF_A_SERVICE: Final = re.compile("(tcp|udp|sctp)://")
"""What Kubernetes sets JITNEY_PORT to, in every pod next to a service of the name `jitney`."""


def _server_variables(environ: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Spell out the short variables, and return which of them stands behind each.

    JITNEY_LOG_LEVEL is short for JITNEY_SERVER__LOG_LEVEL; JITNEY_HOST and JITNEY_PORT are for a place to listen.
    """
    spelled, short = dict(environ), dict[str, str]()

    def put(option: str, text: str, variable: str) -> None:
        long = f"JITNEY_SERVER__{option.upper()}"
        if long not in spelled:
            spelled[long], short[long] = text, variable

    for name in server_options():
        text = spelled.pop(f"JITNEY_{name.upper()}", None)
        if text is not None:
            put(name, text, f"JITNEY_{name.upper()}")
    host, port = spelled.pop("JITNEY_HOST", None), spelled.pop("JITNEY_PORT", None)
    if port is not None and _OF_A_SERVICE.match(port):
        port = None
    elif port is not None and not (port.isascii() and port.isdecimal()):
        raise ConfigError(f"JITNEY_PORT is {port!r}; it is a number from 1 to 65535, or 0 for any")
    if host is not None or port is not None:
        address = f"tcp:{_bracketed(host or DEFAULT_HOST)}:{port or DEFAULT_PORT}"
        put("listen", address, "JITNEY_HOST" if port is None else "JITNEY_PORT")
    return spelled, short


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _check_ray(options: ServerOptions, places: Mapping[str, str]) -> None:
    """Refuse a cluster that cannot be reached from here, before anything is started. Ray itself is not imported."""
    address, place = str(options.ray_address), places["ray_address"]
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto" and not (host and "/" not in host and port.isascii() and port.isdecimal()):
        raise ConfigError(f"{place} is {address!r}: write HOST:PORT, ray://HOST:PORT or auto")
    found = find_spec("ray")
    if found is None or found.origin is None:  # a folder of that name is not the package
        raise ConfigError(f"{places['ray_address']}: Ray is not installed here; install it: pip install 'ray>=2.49'")
    if options.ray_listen is not None:
        check_listen(options.ray_listen, places["ray_listen"], kinds=("tcp",))


def check_listen(address: str, place: str, kinds: Sequence[str] = ("tcp", "unix")) -> None:
    """Refuse what is not an address to listen at, before anything is started. `place` is where it is written."""
    kind, _, rest = address.partition(":")
    host, _, port = rest.rpartition(":")
    if kind == "tcp" and kind in kinds and host and port.isdecimal() and int(port) <= 65_535:
        return
    if kind == "unix" and kind in kinds and rest:
        return
    forms = " or ".join({"tcp": "tcp:HOST:PORT", "unix": "unix:PATH"}[kind] for kind in kinds)
    raise ConfigError(f"{place}: cannot listen on {address!r}: write {forms}; PORT is 1 to 65535, or 0 for any")
