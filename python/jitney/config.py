"""Layers of options, weakest first: default, decorator, file, environment, `--set`; and where each value came from.

Nothing is read at import: the file's path, the environment and the `--set` arguments are passed in.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from jitney.errors import ConfigError
from jitney.options import (
    DeploymentOptions,
    Option,
    ServerOptions,
    deployment_options,
    parse,
    server_options,
    unknown,
)

__all__ = [
    "LAYERS",
    "SERVER",
    "DeploymentOptions",
    "Option",
    "Overrides",
    "Resolved",
    "ResolvedServer",
    "ServerOptions",
    "SetText",
    "deployment_options",
    "environment_name",
    "read_overrides",
    "resolve",
    "resolve_server",
    "server_options",
]

LAYERS: Final = ("default", "decorator", "file", "environment", "set")
"""Weakest first. For server options the flags take the place of `set`."""

SERVER: Final = "server"
"""What the server's own options are called where a deployment's name could stand; no deployment may have it."""


_SECRET: Final = ("key", "token", "secret", "password", "passwd", "passphrase", "credential")
_USER_IN_URL: Final = re.compile(r"://[^/@\s]+@")


class SetText(str):
    """A constructor argument from `--set`: text whose type only the constructor's annotations can tell."""

    __slots__ = ()


@dataclass
class _Layer:
    options: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    init: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def put(self, name: str, key: str, value: object) -> None:
        self.options.setdefault(name, {})[key] = value

    def names(self) -> set[str]:
        return (self.options.keys() | self.init.keys()) - {SERVER, environment_name(SERVER)}

    def first(self, name: str) -> str:
        """Say the first thing that is set for this deployment, as it is written."""
        path = next(iter(self.options.get(name, ())), None) or f"init.{next(iter(self.init[name]))}"
        return f"{name}.{path}"


@dataclass
class Overrides:
    """What file, environment and `--set` say of all deployments and of the server, parsed and checked by type."""

    file: _Layer = field(default_factory=_Layer)
    environment: _Layer = field(default_factory=_Layer)
    sets: _Layer = field(default_factory=_Layer)
    program: _Layer = field(default_factory=_Layer)
    """Constructor arguments that a program gives as values; its options are among `sets`."""

    def give(self, key: str, value: object) -> None:
        """Add what a program says: NAME.option = value, or NAME.init.ARGUMENT = value with the type that it has."""
        name, separator, argument = key.rpartition(".init.")
        if name and separator and argument and "." not in argument:
            if value is not None:
                _check_plain(f"options: `{key}`", value)
            self.program.init.setdefault(name, {})[argument] = value
            return
        name, _, option = key.rpartition(".")
        if not name or not option:
            raise ConfigError(f"options: `{key}`: expected NAME.option, as in {{'embedder.max_batch_size': 8}}")
        if name == SERVER:
            raise ConfigError(f"options: `{key}`: an engine inside a program has no options of a server")
        self.sets.put(name, option, parse(deployment_options(), (f"`{key}`", "options"), option, _as_text(value)))

    def to_json(self) -> str:
        """As JSON, which is how overrides reach worker processes."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "Overrides":
        """Read what `to_json` wrote."""
        return msgspec.json.decode(text, type=cls)

    def names(self) -> dict[str, str]:
        """All deployment names in the file, in `--set` and in what a program gives, as written, and where they are."""
        return {
            **{name: f"`{self.program.first(name)}` (options)" for name in self.program.names()},
            **{name: f"`{self.sets.first(name)}` (set)" for name in self.sets.names()},
            **{name: f"[deployment.{name}] (file)" for name in self.file.names()},
        }

    def environment_names(self) -> dict[str, str]:
        """All deployment names in the environment, in its own spelling, which no other layer may use, and where."""
        return {
            name: f"JITNEY_{name}__{next(iter(self.environment.options[name])).upper()} (environment)"
            for name in self.environment.names()
        }

    def unknown_names(self, known: Iterable[str]) -> list[str]:
        """One message for each name in a layer that is none of the deployments `known`."""
        known = list(known)
        spelled = [environment_name(name) for name in known]
        layers = (
            ("file", self.file, known),
            ("environment", self.environment, spelled),
            ("set", self.sets, known),
            ("options", self.program, known),
        )
        return [
            f"{layer}: {unknown('deployment', name, names)}"
            for layer, held, names in layers
            for name in sorted(held.names())
            if name not in names
        ]


@dataclass(frozen=True)
class Resolved:
    """The options in force of one deployment, where each came from, and its constructor arguments."""

    options: DeploymentOptions
    sources: dict[str, str]
    init: dict[str, object]

    def shown_init(self) -> dict[str, Any]:
        """Return the constructor arguments as they may be printed and served: without what looks secret."""
        return cast("dict[str, Any]", without_secrets(self.init))


def _as_text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, cast("Sequence[object]", value)))
    return str(value).lower() if isinstance(value, bool) else str(value)


def without_secrets(value: object) -> object:
    """Return a value as it may be printed: what looks secret by its name is starred."""
    if isinstance(value, dict):
        return {
            key: "***" if _looks_secret(key) else without_secrets(part)
            for key, part in cast("dict[str, object]", value).items()
        }
    if isinstance(value, list):
        return [without_secrets(part) for part in cast("list[object]", value)]
    return _USER_IN_URL.sub("://***@", value) if isinstance(value, str) else value


def _looks_secret(name: str) -> bool:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return any(word.removesuffix("s").endswith(_SECRET) for word in re.split(r"[^a-z0-9]+", words))


@dataclass(frozen=True)
class ResolvedServer:
    """The server's options in force, and where each came from."""

    options: ServerOptions
    sources: dict[str, str]


def environment_name(name: str) -> str:
    """Spell a deployment's name as the environment does: "my-model.v2" is MY_MODEL_V2."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def read_overrides(toml_path: str | None, environ: Mapping[str, str], sets: Sequence[str]) -> Overrides:
    """Read all layers above the decorator; ConfigError names the layer and the key of whatever is wrong."""
    overrides = Overrides()
    if toml_path is not None:
        _read_file(overrides.file, toml_path)
    _read_environment(overrides.environment, environ)
    for argument in sets:
        _read_set(overrides.sets, argument)
    return overrides


def resolve(name: str, declared: Mapping[str, object], overrides: Overrides) -> Resolved:
    """Find the options in force of the deployment `name`, whose decorator declared `declared`."""
    spelled = environment_name(name)
    decorator = {
        key: parse(deployment_options(), (f"deployment `{name}`", "decorator"), key, value)
        for key, value in declared.items()
    }
    layers = {
        "decorator": decorator,
        "file": overrides.file.options.get(name, {}),
        "environment": overrides.environment.options.get(spelled, {}),
        "set": overrides.sets.options.get(name, {}),
    }
    values, sources = _merge(deployment_options(), layers)
    options = DeploymentOptions(**values)
    _check_together(name, options, sources)
    init: dict[str, object] = dict(overrides.file.init.get(name, {}))
    init |= {key: SetText(text) for key, text in overrides.sets.init.get(name, {}).items()}
    init |= overrides.program.init.get(name, {})
    return Resolved(options, sources, init)


def resolve_server(flags: Mapping[str, object], overrides: Overrides) -> ResolvedServer:
    """Find the server's options in force; `flags` are the typed values of the command line, only those given."""
    layers = {
        "file": overrides.file.options.get(SERVER, {}),
        "environment": overrides.environment.options.get(environment_name(SERVER), {}),
        "set": {key: parse(server_options(), ("server", "flag"), key, flags[key]) for key in flags},
    }
    values, sources = _merge(server_options(), layers)
    return ResolvedServer(ServerOptions(**values), sources)


def _merge(table: dict[str, Option], layers: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    values = {key: option.default for key, option in table.items()}
    sources = dict.fromkeys(table, "default")
    for layer, held in layers.items():
        for key, value in held.items():
            # JSON has no tuples: what crossed to a worker came back as a list.
            values[key] = tuple(cast("list[str]", value)) if isinstance(value, list) else value
            sources[key] = layer
    return values, sources


def _check_together(name: str, options: DeploymentOptions, sources: Mapping[str, str]) -> None:
    if options.policy != "fixed" and options.max_batch_delay_ms > 0:
        how = "never waits" if options.policy == "drain" else "finds out for itself how long to wait"
        raise ConfigError(
            f"deployment `{name}`: policy `{options.policy}` ({sources['policy']}) {how}, but max_batch_delay_ms is "
            f"{options.max_batch_delay_ms:g} ({sources['max_batch_delay_ms']}); use policy `fixed`, or drop the delay"
        )
    if options.min_ready_replicas > options.replicas:
        raise ConfigError(
            f"deployment `{name}`: min_ready_replicas is {options.min_ready_replicas} "
            f"({sources['min_ready_replicas']}), but there are only {options.replicas} replicas "
            f"({sources['replicas']})"
        )


def _read_file(layer: _Layer, path: str) -> None:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} (file) cannot be read: {error}") from error
    for key in document:
        if key not in ("deployment", SERVER):
            raise ConfigError(f"{path} (file): {unknown('table', key, ('deployment', SERVER))}")
    for key, value in _table_in(path, "server", document.get(SERVER, {})).items():
        layer.put(SERVER, key, parse(server_options(), (f"{path} [server]", "file"), key, value))
    for name, table in _table_in(path, "deployment", document.get("deployment", {})).items():
        _read_file_deployment(layer, path, name, table)


def _read_file_deployment(layer: _Layer, path: str, name: str, table: object) -> None:
    where = f"{path} [deployment.{name}]"
    options = dict(_table_in(path, f"deployment.{name}", table))
    init = _table_in(path, f"deployment.{name}.init", options.pop("init", {}))
    layer.options[name] = {
        key: parse(deployment_options(), (where, "file"), key, value) for key, value in options.items()
    }
    for key, value in init.items():
        _check_plain(f"{path} [deployment.{name}.init] (file): `{key}`", value)
    if init:
        layer.init[name] = dict(init)


def _table_in(path: str, key: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path} (file): `{key}` is a table, written [{key}], not {value!r}")
    return cast("dict[str, object]", value)


def _check_plain(where: str, value: object) -> None:
    """Refuse constructor arguments that JSON would change on their way to a worker."""
    if isinstance(value, dict):
        for key, part in cast("dict[str, object]", value).items():
            _check_plain(f"{where}.{key}", part)
    elif isinstance(value, list):
        for part in cast("list[object]", value):
            _check_plain(where, part)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}: {value!r} is not a finite number")
    elif not isinstance(value, (str, int, float, bool)):
        raise ConfigError(f"{where}: {type(value).__name__} is not supported; write it as a string")


def _read_environment(layer: _Layer, environ: Mapping[str, str]) -> None:
    for variable, text in sorted(environ.items()):
        name, separator, key = variable.removeprefix("JITNEY_").rpartition("__")
        if not variable.startswith("JITNEY_") or not separator:
            continue
        if not name:
            raise ConfigError(f"{variable} (environment) names no deployment; write JITNEY_NAME__OPTION")
        table = server_options() if name == environment_name(SERVER) else deployment_options()
        if name.endswith("__INIT") and key.lower() not in table:
            raise ConfigError(
                f"{variable} (environment): constructor arguments are given in the file, [deployment.NAME.init], "
                f"or by --set NAME.init.{key.lower()}=VALUE"
            )
        layer.put(name, key.lower(), parse(table, (variable, "environment"), key.lower(), text))


def _read_set(layer: _Layer, argument: str) -> None:
    left, separator, text = argument.partition("=")
    path = left.strip().split(".")
    if not separator or len(path) < 2 or not all(path):
        raise ConfigError(f"--set {argument}: expected NAME.option=value")
    # Names may hold dots, options and arguments may not: so read from the right.
    if len(path) >= 3 and path[-2] == "init":
        layer.init.setdefault(".".join(path[:-2]), {})[path[-1]] = text
        return
    name = ".".join(path[:-1])
    if name == SERVER:
        raise ConfigError(f"--set {argument}: the server's options are flags: --{path[-1].replace('_', '-')} {text}")
    layer.put(name, path[-1], parse(deployment_options(), (f"--set {left}", "set"), path[-1], text))
