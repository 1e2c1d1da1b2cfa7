"""Fields of pydantic's types have two names: one that they are read by, and one that they are written under.

What a program sends is read at the other end, and what comes back was written there. So here are copies of a core
schema in which each field is written under the name that it is read by, or read by the one that it is written under.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, cast

from pydantic_core import core_schema

HELD: Final = frozenset({"default", "metadata", "expected", "members", "serialization", "config"})
"""Parts of a schema that hold values or what the user wrote, and no schemas of ours."""
_FIELDS: Final = ("model-field", "dataclass-field", "typed-dict-field")
_LEFT_OUT: Final = ("serialization_exclude", "serialization_exclude_if")
_READ_BY: Final = ("validate_by_alias", "validate_by_name", "populate_by_name")

LOST: Final[ContextVar[list[str]]] = ContextVar("LOST")
"""Fields that have been left out though they say something. Raised from there, a union would drop it."""

Node = dict[str, Any]
Config = Mapping[str, Any]


class _Renamed(ABC):
    """A copy of a schema with other names for its fields."""

    def __init__(self, schema: Any) -> None:
        self.differs = False
        """Whether there was anything to be changed."""
        self.is_possible = True
        """Whether there is a name for each, and what its type needs."""
        self.schema: Final[Any] = self._copy(schema, {})

    def _copy(self, node: Any, config: Config, name: str = "") -> Any:
        if type(node) in (list, tuple):
            parts = cast("list[Any] | tuple[Any, ...]", node)
            return type(parts)(self._copy(part, config) for part in parts)
        if not isinstance(node, Mapping):
            return node
        node = cast("Mapping[str, Any]", node)
        kind = node.get("type")
        if not isinstance(kind, str):  # fields or choices by name
            return {name: self._copy(part, config, name) for name, part in node.items()}
        config = node.get("config") or config
        copied = {key: part if key in HELD else self._copy(part, config) for key, part in node.items()}
        if kind in _FIELDS:
            self._field(copied.get("name", name), copied, config)
        else:
            self._other(copied, config)
        return copied

    @abstractmethod
    def _field(self, name: str, field: Node, config: Config) -> None:
        """Give a field its other name."""

    @abstractmethod
    def _other(self, node: Node, config: Config) -> None:
        """Change whatever is no field."""

    def _put(self, node: Node, key: str, value: Any) -> None:
        """Set it, or take it away."""
        self.differs |= node.get(key) != value
        node.pop(key, None)
        if value is not None:
            node[key] = value


class AsRead(_Renamed):
    """Writes what can be read: under those names, without what is computed.

    What a field is to leave out it leaves out, unless there is no reading without it. Examples lack that too: they are
    shown to everyone.
    """

    def __init__(self, schema: Any, *, is_shown: bool = False) -> None:
        self._is_shown: Final = is_shown
        super().__init__(schema)

    def _field(self, name: str, field: Node, config: Config) -> None:
        aliases = None if config.get("validate_by_alias") is False else field.get("validation_alias")
        alias = _plain_name(aliases)
        self._put(field, "serialization_alias", alias)
        if not self._is_shown:
            self._put(field, _LEFT_OUT[1], None)
            if not _may_be_missing(field):
                self._put(field, _LEFT_OUT[0], None)
        if aliases is not None and alias is None and not any(map(config.get, _READ_BY[1:])):
            self.is_possible &= _LEFT_OUT[1] in core_schema.ModelField.__annotations__  # pydantic 2.12
            self._put(field, _LEFT_OUT[1], _left_out_unless_changed(name, _bare(field)))
        if field.get("init") is False:
            self._put(field, "serialization_exclude", True)

    def _other(self, node: Node, config: Config) -> None:
        if node.get("computed_fields"):
            self._put(node, "computed_fields", None)


class AsWritten(_Renamed):
    """Reads what was written: by those names, whatever of it was computed.

    The names that it is read by elsewhere stay: `predict` may have returned a dict that has those.
    """

    def __init__(self, schema: Any) -> None:
        self._renamed: Final[set[str]] = set()
        self._telling: Final[set[str]] = set()
        super().__init__(schema)
        # A field that tells the types of a union apart must have the name that the union knows.
        self.is_possible &= self._renamed.isdisjoint(self._telling)

    def _field(self, name: str, field: Node, config: Config) -> None:
        read, written = field.get("validation_alias"), field.get("serialization_alias")
        if read != written:
            self._renamed.add(_plain_name(read) or name)
            choices = _choices(written or name) + _choices(read or name)
            self._put(field, "validation_alias", [path for i, path in enumerate(choices) if path not in choices[:i]])
        self.is_possible &= _may_be_missing(field) or not any(map(field.get, _LEFT_OUT))

    def _other(self, node: Node, config: Config) -> None:
        if isinstance(node.get("discriminator"), str):
            self._telling.add(node["discriminator"])
        if node.get("config", {}).get("validate_by_alias") is False:
            self._put(node, "config", node["config"] | {"validate_by_alias": True})
        extra = node.get("extra_behavior") or config.get("extra_fields_behavior")
        if node.get("computed_fields") and extra == "forbid":
            self._put(node, "extra_behavior", "ignore")


def _left_out_unless_changed(name: str, schema: Node) -> Callable[[Any], bool]:
    """Leave out a field that has no name of its own: whoever reads it makes the same default."""
    factory = None if schema.get("default_factory_takes_data") else schema.get("default_factory")

    def is_left_out(value: Any) -> bool:
        is_made = ("default" in schema and value == schema["default"]) or (factory is not None and value == factory())
        if not is_made:
            LOST.get([]).append(name)
        return True

    return is_left_out


def _bare(field: Node) -> Node:
    schema = field["schema"]
    while schema["type"].startswith("function-") and "schema" in schema:  # validators of the field
        schema = schema["schema"]
    return schema


def _may_be_missing(field: Node) -> bool:
    return field.get("required") is False or _bare(field)["type"] == "default"


def _choices(aliases: Any) -> list[list[Any]]:
    """Spell aliases as AliasChoices of paths."""
    if isinstance(aliases, str):
        return [[aliases]]
    return list(aliases) if isinstance(aliases[0], list) else [aliases]


def _plain_name(aliases: Any) -> str | None:
    """Choose a name that is no path into what else there is (AliasPath), of those that there are (AliasChoices)."""
    if aliases is None:
        return None
    return next((path[0] for path in _choices(aliases) if len(path) == 1 and isinstance(path[0], str)), None)
