"""Run workers on this machine for a server on another one, until Ctrl-C or SIGTERM.

The server was started with --workers-listen. Workers import the targets here: the code of the models and its packages
must be installed on this machine, and targets are found from the working directory.
"""

import argparse
import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from jitney.context import available_cores
from jitney.errors import ConfigError

ENGINE_VARIABLE: Final = "JITNEY_WORKER_ENGINE"
"""The engine that started this agent, such as `ray`. People and their tools leave it out."""
NAME_VARIABLE: Final = "JITNEY_WORKER_NAME"
"""The name that such an engine gives the agent."""
_DRAIN_TIMEOUT_S: Final = 30.0
_AUTO: Final = "auto"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("--connect", action="append", required=True, metavar="tcp:HOST:PORT", help="address of the server; repeatable")
    add("--secret-file", required=True, metavar="PATH", help="a copy of the server's secret file")
    add(
        "--workers-tls", default=_AUTO, metavar="HOW",
        help="auto, off or CERT,KEY[,CA]: as the server's option, with files of this machine (default: auto)",
    )  # fmt: skip
    add("--places", type=int, metavar="N", help="workers that may run at once (default: one, or one for each device)")
    add("--devices", metavar="LIST", help="devices, a place for each, as in cuda:0,cuda:1; `auto`: all that are found")
    add("--cores", type=int, metavar="N", help="cores that all workers may use together (default: all)")
    add("--resources", metavar="LIST", help="what else this machine has, as in tpu=4; models select by it")
    add(
        "--labels",
        metavar="LIST",
        help="what you say of this machine, as in zone=a; `node_labels` of models select by it",
    )
    add("--targets", metavar="LIST", help="only these targets can be imported here, written as for the server")
    add(
        "--drain-timeout-s", type=float, default=_DRAIN_TIMEOUT_S, metavar="S",
        help=f"longest time to finish batches at shutdown (default: {_DRAIN_TIMEOUT_S:g})",
    )  # fmt: skip
    add("--log-format", choices=("text", "json"), default="text", help="format of log lines (default: text)")
    add("--log-level", choices=("error", "warn", "info", "debug", "trace"), default="info", help="(default: info)")


def run(arguments: argparse.Namespace) -> int:
    """Be an agent until a signal ends it; returns the exit code."""
    text = json.dumps(settings(arguments, os.environ))
    from jitney import _core  # noqa: PLC0415 - only running needs Rust

    return _core.work(text)


def settings(arguments: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what the Rust side is to do."""
    for address in arguments.connect:
        host, _, port = address.removeprefix("tcp:").rpartition(":")
        if not (address.startswith("tcp:") and host and port.isdecimal() and 0 < int(port) <= 65_535):
            raise ConfigError(f"--connect: cannot connect to {address!r}: write tcp:HOST:PORT; PORT is 1 to 65535")
    return {
        "connect": arguments.connect,
        "secret_file": arguments.secret_file,
        "workers_tls": arguments.workers_tls,
        "places": places(arguments.devices, arguments.places, arguments.cores or available_cores(), environ),
        "labels": _pairs("--labels", arguments.labels),
        "targets": _list(arguments.targets),
        "resources": {name: _amount(name, text) for name, text in _pairs("--resources", arguments.resources).items()},
        "python": sys.executable,
        "python_version": platform.python_version(),
        "engine": environ.get(ENGINE_VARIABLE, ""),
        "name": environ.get(NAME_VARIABLE, ""),
        "drain_timeout_s": arguments.drain_timeout_s,
        "log_format": arguments.log_format,
        "log_level": arguments.log_level,
    }


def places(devices: str | None, count: int | None, cores: int, environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return room for workers: a place for each device, or `count` places with the devices dealt out evenly."""
    names = _found(environ) if devices == _AUTO else _list(devices)
    if count is None:
        count = max(1, len(names))
    if count < 1:
        raise ConfigError(f"--places is {count}; it is 1 or more")
    if names and len(names) % count:
        raise ConfigError(f"--places is {count}, and {len(names)} devices cannot be dealt out evenly to so many places")
    each = len(names) // count
    share = max(1, cores // count)
    return [{"devices": names[each * place : each * (place + 1)], "cores": share} for place in range(count)]


def _found(environ: Mapping[str, str]) -> list[str]:
    """Return the devices that this machine has, without loading any framework."""
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        if variable in environ:
            return [f"cuda:{name}" for name in _list(environ[variable]) if name != "-1"]
    try:
        nodes = os.listdir("/dev")
    except OSError:
        return []
    numbers = sorted(int(node.removeprefix("nvidia")) for node in nodes if re.fullmatch(r"nvidia\d+", node))
    return [f"cuda:{number}" for number in range(len(numbers))]


def _list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _pairs(flag: str, text: str | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in _list(text):
        name, sign, value = part.partition("=")
        if not (name and sign and value):
            raise ConfigError(f"{flag}: {part!r} is not NAME=VALUE")
        pairs[name] = value
    return pairs


def _amount(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--resources: {name} is {text!r}; it is a number") from None
