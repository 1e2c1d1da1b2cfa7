"""Layers of options, weakest first: default, decorator, file, environment, `--set`; and where each value came from.

Nothing is read at import: the file's path, the environment and the `--set` arguments are passed in.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from jitney.config.option import Option, parse, unknown
from jitney.config.options import AUTO, DeploymentOptions, ServerOptions, deployment_options, server_options
from jitney.config.secrets import without_secrets
from jitney.errors import ConfigError

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
    "flag_of",
    "resolve",
    "resolve_server",
    "server_options",
]

LAYERS: Final = ("default", "decorator", "file", "environment", "set")
"""Weakest first. For server options the flags replace `set`."""

SERVER: Final = "server"
"""The name of the server's options among those of deployments; no deployment may have it."""


_HEADER: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_SECRET_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
"""What clients prove with who they are; no model reads it."""


class SetText(str):
    """A constructor argument from `--set`: text, whose type the constructor's annotation says."""

    __slots__ = ()


@dataclass
class Layer:
    """What one source sets: options and constructor arguments, by deployment."""

    options: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    init: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    places: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Where each is written, as the user finds it: `JITNEY_M__REPLICAS`, `--set m.replicas`; by deployment and key."""

    def put(self, name: str, key: str, value: object, place: str) -> None:
        """Set an option of a deployment, which is written at this place."""
        self.options.setdefault(name, {})[key] = value
        self.places.setdefault(name, {})[key] = place

    def put_init(self, name: str, argument: str, value: object, place: str) -> None:
        """Set a constructor argument of a deployment, which is written at this place."""
        self.init.setdefault(name, {})[argument] = value
        self.places.setdefault(name, {})[f"init.{argument}"] = place

    def names(self) -> set[str]:
        """Return the names of all deployments that this source sets something for."""
        return (self.options.keys() | self.init.keys()) - {SERVER, environment_name(SERVER)}

    def first_place(self, name: str) -> str:
        """Return the first place where something is set for this deployment, for messages."""
        return next(iter(self.places[name].values()))


@dataclass
class Overrides:
    """The options of all deployments and of the server by source, parsed and checked."""

    file: Layer = field(default_factory=Layer)
    environment: Layer = field(default_factory=Layer)
    sets: Layer = field(default_factory=Layer)
    program: Layer = field(default_factory=Layer)
    """Constructor arguments that a program gives as values; its options are among `sets`."""
    flags: dict[str, Any] = field(default_factory=dict[str, Any])
    """Options without a name, such as `--replicas 2`: for the one deployment that is served."""

    def give(self, key: str, value: object) -> None:
        """Add an option that a program gives: NAME.option, or the constructor argument NAME.init.ARGUMENT."""
        name, separator, argument = key.rpartition(".init.")
        if name and separator and argument and "." not in argument:
            if value is not None:
                check_plain(f"options: `{key}`", value)
            self.program.put_init(name, argument, value, f"options: `{key}`")
            return
        name, _, option = key.rpartition(".")
        if not name or not option:
            raise ConfigError(f"options: `{key}`: expected NAME.option, as in {{'embedder.max_batch_size': 8}}")
        if name == SERVER:
            raise ConfigError(f"options: `{key}`: an engine inside a program has no options of a server")
        place = f"options: `{key}`"
        self.sets.put(name, option, parse(deployment_options(), (place, "options"), option, value), place)

    def give_flag(self, key: str, text: str) -> None:
        """Add an option of the only deployment, as `--replicas 2` gives it."""
        self.flags[key] = parse(deployment_options(), (flag_of(key), "set"), key, text)

    def check_flags(self, served: Sequence[str], example: str) -> None:
        """Raise ConfigError if options without a name are given although several things are served.

        `example` is the name of a deployment for the message.
        """
        if self.flags and len(served) > 1:
            key, value = next(iter(self.flags.items()))
            text = _as_text(value)
            raise ConfigError(
                f"{flag_of(key)} {text} is for one deployment, but there are several ({', '.join(served)}); "
                f"write --set {example}.{key}={text}"
            )

    def to_json(self) -> str:
        """Return the overrides as JSON, for worker processes."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "Overrides":
        """Read what `to_json` wrote."""
        return msgspec.json.decode(text, type=cls)

    def names(self) -> dict[str, str]:
        """Return the deployment names in the file, in `--set` and in a program's options, and where each is."""
        layers = (self.program, self.sets, self.file)
        return {name: layer.first_place(name) for layer in layers for name in layer.names()}

    def environment_names(self) -> dict[str, str]:
        """Return the deployment names in the environment, spelled as there (MY_MODEL), and where each is."""
        return {name: self.environment.first_place(name) for name in self.environment.names()}

    def unknown_names(self, known: Iterable[str]) -> list[str]:
        """Return one message for each name in a layer that is not among the deployments `known`."""
        known = list(known)
        spelled = [environment_name(name) for name in known]
        layers = ((self.file, known), (self.environment, spelled), (self.sets, known), (self.program, known))
        return [
            f"{layer.first_place(name)}: {unknown('deployment', name, names)}"
            for layer, names in layers
            for name in sorted(layer.names())
            if name not in names
        ]


@dataclass(frozen=True)
class Resolved:
    """The options of one deployment in force, the source of each, and its constructor arguments."""

    options: DeploymentOptions
    sources: dict[str, str]
    """The layer of each option."""
    places: dict[str, str]
    """Where each option is written, for messages: a flag, a variable, a table of a file, or its layer."""
    init: dict[str, object]

    def shown_init(self) -> dict[str, Any]:
        """Return the constructor arguments for print and `/config`: values that look secret are replaced."""
        return cast("dict[str, Any]", without_secrets(self.init))


@dataclass(frozen=True)
class ResolvedServer:
    """The server's options in force, and the source of each."""

    options: ServerOptions
    sources: dict[str, str]
    """The layer of each option."""
    places: dict[str, str]
    """Where each option is written, for messages."""


def flag_of(key: str) -> str:
    """Spell an option as the command line does."""
    return f"--{key.replace('_', '-')}"


def _as_text(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(cast("Sequence[str]", value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def environment_name(name: str) -> str:
    """Spell a deployment's name as the environment does: "my-model.v2" is MY_MODEL_V2."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def resolve(
    name: str, declared: Mapping[str, object], overrides: Overrides, given_init: Mapping[str, object] | None = None
) -> Resolved:
    """Find the options in force of the deployment `name`; the code gives `declared` and constructor arguments."""
    spelled = environment_name(name)
    decorator = {
        key: parse(deployment_options(), (f"deployment `{name}` (decorator)", "decorator"), key, value)
        for key, value in declared.items()
    }
    layers = {
        "decorator": decorator,
        "file": overrides.file.options.get(name, {}),
        "environment": overrides.environment.options.get(spelled, {}),
        "set": {**overrides.flags, **overrides.sets.options.get(name, {})},
    }
    values, sources = _merge(deployment_options(), layers)
    written = {
        "file": overrides.file.places.get(name, {}),
        "environment": overrides.environment.places.get(spelled, {}),
        "set": {**{key: flag_of(key) for key in overrides.flags}, **overrides.sets.places.get(name, {})},
    }
    places = _places(sources, written)
    options = DeploymentOptions(**values)
    _check_together(name, options, places)
    init: dict[str, object] = {**(given_init or {}), **overrides.file.init.get(name, {})}
    init |= {key: SetText(text) for key, text in overrides.sets.init.get(name, {}).items()}
    init |= overrides.program.init.get(name, {})
    return Resolved(options, sources, places, init)


def resolve_server(
    flags: Mapping[str, object], overrides: Overrides, place_of: Callable[[str], str] | None = None
) -> ResolvedServer:
    """Find the server's options in force. `flags` are the typed values of the command line, only those given.

    `place_of` returns the spelling of a flag, for messages (default: that of the command line).
    """
    place_of, spelled = place_of or flag_of, environment_name(SERVER)
    layers = {
        "file": overrides.file.options.get(SERVER, {}),
        "environment": overrides.environment.options.get(spelled, {}),
        "set": {key: parse(server_options(), (place_of(key), "flag"), key, flags[key]) for key in flags},
    }
    values, sources = _merge(server_options(), layers)
    written = {
        "file": overrides.file.places.get(SERVER, {}),
        "environment": overrides.environment.places.get(spelled, {}),
        "set": {key: place_of(key) for key in flags},
    }
    return ResolvedServer(ServerOptions(**values), sources, _places(sources, written))


def _places(sources: Mapping[str, str], written: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {key: written.get(layer, {}).get(key, layer) for key, layer in sources.items()}


def _merge(table: dict[str, Option], layers: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    values = {key: option.default for key, option in table.items()}
    sources = dict.fromkeys(table, "default")
    for layer, given in layers.items():
        for key, value in given.items():
            # JSON has no tuples: a worker gets a list.
            values[key] = tuple(cast("list[str]", value)) if isinstance(value, list) else value
            sources[key] = layer
    return values, sources


def _check_together(name: str, options: DeploymentOptions, places: Mapping[str, str]) -> None:
    if options.policy != "fixed" and options.max_batch_delay_ms > 0:
        how = "never waits" if options.policy == "eager" else "finds out for itself how long to wait"
        raise ConfigError(
            f"deployment `{name}`: policy `{options.policy}` ({places['policy']}) {how}, but max_batch_delay_ms is "
            f"{options.max_batch_delay_ms:g} ({places['max_batch_delay_ms']}); use policy `fixed`, or drop the delay"
        )
    if AUTO in options.devices and len(options.devices) > 1:
        raise ConfigError(
            f"deployment `{name}`: devices are {', '.join(options.devices)} ({places['devices']}); "
            f"write `{AUTO}` alone, or names of devices"
        )
    for header in options.context_headers:
        where = f"deployment `{name}`: context_headers has {header!r} ({places['context_headers']})"
        if header in _SECRET_HEADERS:
            raise ConfigError(f"{where}, which holds a secret of the client: leave it out")
        if not _HEADER.fullmatch(header):
            raise ConfigError(f"{where}, which is not the name of a header: write names such as x-tenant")
    _check_replicas(name, options, places)


def _check_replicas(name: str, options: DeploymentOptions, places: Mapping[str, str]) -> None:
    least, most = options.replica_bounds()

    def said(option: str) -> str:
        return f"{option} is {getattr(options, option)} ({places[option]})"

    lower = "min_replicas" if options.min_replicas is not None else "replicas"
    upper = "max_replicas" if options.max_replicas is not None else "replicas"
    if getattr(options, lower) > getattr(options, upper):
        raise ConfigError(
            f"deployment `{name}`: {said(lower)}, but {said(upper)}; give a max_replicas of at least "
            f"{getattr(options, lower)}"
        )
    if places["replicas"] != "default" and not max(least, 1) <= options.replicas <= most:
        raise ConfigError(
            f"deployment `{name}`: {said('replicas')}, which is not between min_replicas = {least} and max_replicas = "
            f"{most}; leave replicas out, or choose a number between them"
        )
    if options.scale_down_after_s is not None and least == most:
        always = "is always 1 replica" if most == 1 else f"are always {most} replicas"
        raise ConfigError(f"deployment `{name}`: {said('scale_down_after_s')}, but there {always}; give max_replicas")
    if least < most:
        if options.min_ready_replicas > max(least, 1):
            raise ConfigError(
                f"deployment `{name}`: {said('min_ready_replicas')}, but there may be only {least} replicas; leave it "
                f"out, or raise min_replicas"
            )
        return
    if options.min_ready_replicas > options.replicas:
        raise ConfigError(
            f"deployment `{name}`: min_ready_replicas is {options.min_ready_replicas} "
            f"({places['min_ready_replicas']}), but there are only {options.replicas} replicas "
            f"({places['replicas']})"
        )


def check_plain(where: str, value: object) -> None:
    """Raise ConfigError for a constructor argument that JSON would change on its way to a worker."""
    if isinstance(value, dict):
        for key, part in cast("dict[str, object]", value).items():
            check_plain(f"{where}.{key}", part)
    elif isinstance(value, list):
        for part in cast("list[object]", value):
            check_plain(where, part)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}: {value!r} is not a finite number")
    elif not isinstance(value, (str, int, float, bool)):
        raise ConfigError(f"{where}: {type(value).__name__} is not supported; write it as a string")
