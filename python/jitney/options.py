"""Return the table of options: each one once, with type, default, unit and meaning; and how a value becomes its type.

Flags, environment variables, file keys and the reference page follow from this table. Where values come from is
`jitney.config`'s business.
"""

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Any, Final, cast, get_args, get_origin, get_type_hints

from jitney.errors import ConfigError

_MEBIBYTE: Final = 1024 * 1024
_U32: Final = 2**32 - 1
_MOST_REPLICAS: Final = 1024
"""Each is a process with an interpreter: a slip of the keyboard must not take the machine along."""
_I64: Final = 2**63 - 1
_LONGEST: Final = {"s": 365 * 86_400, "ms": 365 * 86_400_000}
"""The longest time that an option can say, a year: more is a mistake, and would not fit where times are added up."""


@dataclass(frozen=True)
class Option:
    """One row of the table."""

    name: str
    type: Any
    default: Any
    meaning: str
    unit: str | None
    minimum: float | None
    maximum: float | None
    above: float | None
    choices: tuple[str, ...]
    in_code_only: bool

    @property
    def is_optional(self) -> bool:
        """Whether None is a value of it."""
        return isinstance(self.type, UnionType) and type(None) in get_args(self.type)

    @property
    def base(self) -> Any:
        """The type without `None`; `tuple` for a list of strings."""
        kind = next(k for k in get_args(self.type) if k is not type(None)) if self.is_optional else self.type
        return get_origin(kind) or kind


def _option(  # noqa: PLR0913 -- a row of the table: each word of it is optional and named
    default: object,
    meaning: str,
    *,
    unit: str | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    in_code_only: bool = False,
) -> Any:
    row = {"meaning": meaning, "unit": unit, "minimum": at_least, "maximum": at_most, "above": above}
    return field(default=default, metadata={**row, "choices": choices, "in_code_only": in_code_only})


def _length(
    default: float | None, meaning: str, *, unit: str = "s", at_least: float | None = None, above: float | None = None
) -> Any:
    return _option(default, meaning, unit=unit, at_least=at_least, above=above, at_most=_LONGEST[unit])


@dataclass(frozen=True, kw_only=True)
class DeploymentOptions:
    """The options of one deployment, in force. `policy` is never None here: see `__post_init__`."""

    max_batch_size: int = _option(32, "most items in one batch", unit="items", at_least=1, at_most=_U32)
    max_batch_cost: int | None = _option(
        None, "most cost units in one batch; an item above it rides alone", unit="cost units", at_least=1, at_most=_I64
    )
    policy: str | None = _option(
        None,
        "when to launch a batch: `auto` when it pays, learned from what batches take and how requests arrive; `drain` "
        "as soon as a replica is free; `fixed` after max_batch_delay_ms; unless given, `fixed` if that delay is above "
        "0, else `auto`",
        choices=("auto", "drain", "fixed"),
    )
    max_batch_delay_ms: float = _length(
        0.0,
        "how long `fixed` may hold a lane open, from the arrival of its oldest item; 0 with the other policies",
        unit="ms",
        at_least=0,
    )
    latency_target_ms: float | None = _length(
        None,
        "as many answers as possible within this, from arrival: a request that would be late is refused early, with "
        "`would_be_late`; unless given, the lowest mean latency, and nobody is refused for being late",
        unit="ms",
        above=0,
    )
    replicas: int = _option(1, "loaded copies of the model", unit="replicas", at_least=1, at_most=_MOST_REPLICAS)
    min_ready_replicas: int = _option(
        1, "copies that must be ready for the deployment to be ready, after the first start", unit="replicas",
        at_least=1, at_most=_MOST_REPLICAS,
    )  # fmt: skip
    devices: tuple[str, ...] = _option((), "devices given to the replicas, round robin, as in cuda:0,cuda:1")
    openai_names: tuple[str, ...] = _option(
        (), "further names by which OpenAI's clients ask for it, as in BAAI/bge-small-en-v1.5,text-embedding-3-small"
    )
    max_queued_items: int = _option(4096, "most items that wait", unit="items", at_least=1, at_most=_I64)
    max_queued_bytes: int = _option(256 * _MEBIBYTE, "most bytes that wait", unit="bytes", at_least=1, at_most=_I64)
    max_wait_s: float | None = _length(
        None,
        "a request is refused on arrival if it would wait longer than this; unless given, longer than ten full "
        "batches (two and a half in overload), though half a second is always allowed, and more than half of its "
        "time-out never; not together with latency_target_ms",
        at_least=0,
    )
    request_timeout_s: float = _length(60.0, "a request's deadline when it names none", above=0)
    batch_timeout_s: float = _length(60.0, "a batch that runs longer is a hang: its worker is killed", above=0)
    load_timeout_s: float = _length(600.0, "loading and warming up may take this long", above=0)
    priority_boost_s: float = _length(1.0, "the head start of a priority class over the next", at_least=0)
    retry: bool = _option(
        True, "whether `predict` may run again on the same item; if not, a lost worker loses its items"
    )
    batched: bool = _option(True, "whether `predict` takes a batch; if not, one item at a time", in_code_only=True)
    max_pixels: int = _option(
        16 * _MEBIBYTE,
        "most pixels of an image that comes in (4096 x 4096); decoded, each takes up to 4 bytes, and a whole batch "
        "is decoded before `predict`",
        unit="pixels",
        at_least=1,
        at_most=_I64,
    )

    def __post_init__(self) -> None:
        if self.policy is None:
            object.__setattr__(self, "policy", "fixed" if self.max_batch_delay_ms > 0 else "auto")

    def to_dict(self) -> dict[str, object]:
        """Return the options as JSON has them."""
        return _as_json(self)


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options of the server, in force."""

    listen: tuple[str, ...] = _option(("tcp:127.0.0.1:8000",), "where to listen: tcp:HOST:PORT or unix:PATH")
    listen_programs: tuple[str, ...] = _option(
        (), "where programs call the models through jitney.connect: unix:PATH, or tcp:HOST:PORT, which needs a key"
    )
    allow_unauthenticated: bool = _option(False, "listen beyond loopback although nobody needs a key")
    api_keys_file: str | None = _option(
        None,
        "file of API keys, one a line, read again when it changes; with it, or with JITNEY_API_KEYS (separated by "
        "commas), every route but the probes asks for a key",
    )
    open_metrics: bool = _option(False, "answer /metrics without a key")
    cors_origin: tuple[str, ...] = _option(
        (), "origins whose pages may call from a browser, as in https://example.org; * for all"
    )
    max_body_bytes: int = _option(64 * _MEBIBYTE, "largest request body", unit="bytes", at_least=1, at_most=_I64)
    max_receiving_bytes: int = _option(
        512 * _MEBIBYTE,
        "most memory that bodies being received may hold together, half of it those that begin, and again answers that "
        "clients have not taken",
        unit="bytes",
        at_least=1,
        at_most=_I64,
    )
    max_connections: int = _option(
        32768, "most open connections; further ones wait to be accepted", unit="connections", at_least=1, at_most=_U32
    )
    header_timeout_s: float = _length(10.0, "a request's header must arrive within this", above=0)
    body_timeout_s: float = _length(
        20.0, "longest silence inside a body, and of a client that does not read its answer", above=0
    )
    idle_timeout_s: float = _length(75.0, "a connection without a request is closed after this", above=0)
    drain_grace_s: float = _length(0.0, 'between "not ready" and "stop accepting" at shutdown', at_least=0)
    drain_timeout_s: float = _length(30.0, "what is in may take this long to finish at shutdown", at_least=0)
    log_format: str = _option("text", "how log lines are written", choices=("text", "json"))
    log_level: str = _option("info", "what is logged", choices=("error", "warn", "info", "debug", "trace"))

    def to_dict(self) -> dict[str, object]:
        """Return the options as JSON has them."""
        return _as_json(self)


def _as_json(options: DeploymentOptions | ServerOptions) -> dict[str, object]:
    values = {row.name: getattr(options, row.name) for row in dataclasses.fields(options)}
    return {
        name: list(cast("tuple[str]", value)) if isinstance(value, tuple) else value for name, value in values.items()
    }


def _table(kind: type) -> dict[str, Option]:
    types = get_type_hints(kind)
    return {
        row.name: Option(name=row.name, type=types[row.name], default=row.default, **row.metadata)
        for row in dataclasses.fields(kind)
    }


@cache
def deployment_options() -> dict[str, Option]:
    """Return the table of a deployment's options, by name, in order."""
    return _table(DeploymentOptions)


@cache
def server_options() -> dict[str, Option]:
    """Return the table of the server's options, by name, in order."""
    return _table(ServerOptions)


_ELSEWHERE: Final = {
    "timeout": "request_timeout_s",
    "timeout_s": "request_timeout_s",
    "batch_timeout": "max_batch_delay_ms",
    "max_wait_time": "max_batch_delay_ms",
    "wait_time": "max_batch_delay_ms",
    "num": "replicas",
    "num_replicas": "replicas",
    "num_workers": "replicas",
    "workers": "replicas",
    "workers_per_device": "replicas",
    "accelerator": "devices",
    "max_latency_ms": "latency_target_ms",
}
"""What options are called by other servers, where the letters alone would lead to another one."""


def unknown(what: str, value: str, known: Iterable[str]) -> str:
    """Say that there is no such thing, and which one was probably meant."""
    known = sorted(known)
    meant = _ELSEWHERE.get(value, "") if what == "option" else ""
    close = [meant] if meant in known else difflib.get_close_matches(value, known, n=1, cutoff=0.5)
    if close:
        return f"there is no {what} `{value}`; did you mean `{close[0]}`?"
    return f"there is no {what} `{value}`; there {'are ' + ', '.join(known) if known else 'is none'}"


def parse_text(option: Option, text: str) -> object:
    """Return the value that a string means, by the option's type; ValueError says what was expected."""
    text = text.strip()
    if option.is_optional and text.lower() in ("", "none"):
        return None
    return _in_range(option, text_as(option.base, text))


def parse_typed(option: Option, value: object) -> object:
    """Return the value of a typed layer (file, decorator); ValueError says what was expected."""
    if value is None and option.is_optional:
        return None
    return _in_range(option, _TYPED[option.base](value))


def _in_range(option: Option, value: Any) -> object:
    if option.choices and value not in option.choices:
        raise ValueError(f"expected one of {', '.join(option.choices)}, got {value!r}")
    if option.minimum is not None and value < option.minimum:
        raise ValueError(f"expected at least {option.minimum:g}, got {value!r}")
    if option.above is not None and value <= option.above:
        raise ValueError(f"expected more than {option.above:g}, got {value!r}")
    if option.maximum is not None and value > option.maximum:
        raise ValueError(f"expected at most {option.maximum}, got {value!r}")
    return value


def _bool_text(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("true", "1", "yes", "on"):
        return True
    if lowered in ("false", "0", "no", "off"):
        return False
    raise ValueError(f"expected true or false, got {text!r}")


def _int_text(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected a whole number, got {text!r}") from None


def _float_text(text: str) -> float:
    try:
        return _finite(float(text))
    except ValueError:
        raise ValueError(f"expected a number, got {text!r}") from None


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {value!r}")
    return value


def _tuple_text(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _bool_typed(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"expected true or false, got {value!r}")


def _int_typed(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"expected a whole number, got {value!r}")


def _float_typed(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return _finite(float(value))
        except OverflowError:
            raise ValueError("expected a number that is not so large") from None
    raise ValueError(f"expected a number, got {value!r}")


def _str_typed(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"expected a string, got {value!r}")


def _tuple_typed(value: object) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(_str_typed(part) for part in cast("list[object]", value))
    raise ValueError(f"expected a list of strings, got {value!r}")


_TEXT: Final[dict[type, Callable[[str], object]]] = {
    bool: _bool_text, int: _int_text, float: _float_text, str: str, tuple: _tuple_text,
}  # fmt: skip
_TYPED: Final[dict[type, Callable[[object], object]]] = {
    bool: _bool_typed, int: _int_typed, float: _float_typed, str: _str_typed, tuple: _tuple_typed,
}  # fmt: skip


_AS_TEXT: Final = ("environment", "set", "options")
"""Layers whose values are text. `options` is what a program calls its `set`."""


def parse(table: dict[str, Option], where: tuple[str, str], key: str, value: object) -> object:
    """Parse one option; `where` is its place and its layer, and ConfigError names both, the key and what to do."""
    place, layer = where
    if key not in table:
        raise ConfigError(f"{place} ({layer}): {unknown('option', key, table)}")
    option = table[key]
    if option.in_code_only and layer != "decorator":
        raise ConfigError(f"{place} ({layer}): `{key}` says how the code is written; set it in @jitney.deployment")
    try:
        return parse_text(option, cast("str", value)) if layer in _AS_TEXT else parse_typed(option, value)
    except ValueError as error:
        raise ConfigError(f"{place} ({layer}): `{key}`: {error}") from None


def text_as(kind: type, text: str) -> object:
    """Return the value of this type that a string means; ValueError says what was expected."""
    return _TEXT[kind](text)
