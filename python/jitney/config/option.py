"""One option: its row in a table, and how a value becomes one of its type. msgspec converts and checks ranges."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Annotated, Any, Final, Literal, cast, get_args, get_origin

import msgspec

from jitney.config.suggestion import closest
from jitney.errors import ConfigError

_TEXT_LAYERS: Final = ("environment", "set", "options")
"""Layers whose strings are text of any type. `options` is what a program gives: it may give typed values too."""
_TABLE_LAYERS: Final = ("file", "decorator")
"""Layers in which one place has many options. In other layers the place names one option."""
_BOOLS: Final = {"yes": "true", "on": "true", "no": "false", "off": "false"}
"""Words for a bool, in addition to those of msgspec: true, false, 1, 0."""
KINDS: Final[dict[Any, str]] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a string", tuple: "a list of strings",
}  # fmt: skip
_IN_OTHER_SERVERS: Final = {
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
"""Names of options in other servers that are spelled like another option here, or like none."""


@dataclass(frozen=True)
class Option:
    """One row of a table."""

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
    is_json: bool = False
    """The value is the text of a JSON object; layers with types may give the object itself."""

    @property
    def is_optional(self) -> bool:
        """Whether the option may be None."""
        return NoneType in get_args(self.type)

    @property
    def base(self) -> Any:
        """The type without None; `tuple` for a list of strings."""
        return get_origin(self._kind) or self._kind

    @property
    def _kind(self) -> Any:
        return next(kind for kind in get_args(self.type) if kind is not NoneType) if self.is_optional else self.type

    @cached_property
    def _checked(self) -> Any:
        """The type with its range, for msgspec."""
        kind = Literal[self.choices] if self.choices else self._kind
        bounds: dict[str, Any] = {"ge": self.minimum, "gt": self.above, "le": self.maximum}
        return Annotated[kind, msgspec.Meta(**bounds)]

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.is_json:
            return "a JSON object"
        bounds = {"at least": self.minimum, "more than": self.above, "at most": self.maximum}
        words = [f"{word} {bound}" for word, bound in bounds.items() if bound is not None]
        return " of ".join(filter(None, [KINDS[self.base], " and ".join(words)]))

    def parse_text(self, text: str) -> object:
        """Return the value that a string stands for; ValueError says what was expected."""
        text = text.strip()
        if self.is_optional and text.lower() in ("", "none"):
            return None
        return self._convert(text, is_text=True)

    def parse_typed(self, value: object) -> object:
        """Return the value of a layer that has types (file, decorator); ValueError says what was expected."""
        if value is None and self.is_optional:
            return None
        if self.is_json and isinstance(value, Mapping):
            try:
                return msgspec.json.encode(value).decode()
            except TypeError:
                raise ValueError(f"expected {self.expected}, got {_show(cast('object', value))}") from None
        # One string is a list too, as on the command line: devices="auto".
        return self._convert(value, is_text=self.base is tuple and isinstance(value, str))

    def _convert(self, value: object, *, is_text: bool) -> object:
        try:
            if self.is_json:
                msgspec.json.decode(msgspec.convert(value, str), type=dict[str, Any])
            return convert_text(self._checked, cast("str", value)) if is_text else msgspec.convert(value, self._checked)
        except msgspec.DecodeError:
            raise ValueError(f"expected {self.expected}, got {_show(value)}") from None


def convert_text(kind: Any, text: str) -> Any:
    """Return the value of this type that a string stands for; msgspec.ValidationError if there is none."""
    base = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if base is bool:
        return msgspec.convert(_BOOLS.get(text.lower(), text), kind, strict=False)
    if get_origin(base) is tuple:
        return msgspec.convert([part.strip() for part in text.split(",") if part.strip()], kind)
    return msgspec.convert(text, kind, strict=False)


def parse(table: dict[str, Option], where: tuple[str, str], key: str, value: object) -> object:
    """Parse one option. `where` is the place where it is written, and its layer; ConfigError names place and key."""
    place, layer = where
    if key not in table:
        raise ConfigError(f"{place}: {unknown('option', key, table)}")
    option = table[key]
    if option.in_code_only and layer != "decorator":
        raise ConfigError(f"{place}: `{key}` says how the code is written; set it in @jitney.deployment")
    try:
        is_text = isinstance(value, str) and layer in _TEXT_LAYERS
        return option.parse_text(cast("str", value)) if is_text else option.parse_typed(value)
    except ValueError as error:
        of_key = f"`{key}`: " if layer in _TABLE_LAYERS else ""
        raise ConfigError(f"{place}: {of_key}{error}") from None


def unknown(what: str, value: str, known: Iterable[str]) -> str:
    """Return a message that there is no such thing, with the name that was probably meant."""
    known = sorted(known)
    meant = _IN_OTHER_SERVERS.get(value, "") if what == "option" else ""
    near = meant if meant in known else closest(value, known, cutoff=0.5)
    if near is not None:
        return f"there is no {what} `{value}`; did you mean `{near}`?"
    return f"there is no {what} `{value}`; there {'are ' + ', '.join(known) if known else 'is none'}"


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
