"""Changed copies of pydantic's core schemas: what its validators and serializers are built from.

A field of a pydantic type may have two names: one that it is read by (`validation_alias`), one that it is written under
(`serialization_alias`). What a program sends is read by a worker, and what comes back was written by one. So one copy
writes each field under the name that it is read by, another reads it by the name that it was written under.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

_VALUES: Final = frozenset({"default", "metadata", "expected", "members", "serialization", "config"})
"""Parts of a schema that hold values, or what the user wrote, and no schemas to change."""
_FIELDS: Final = ("model-field", "dataclass-field", "typed-dict-field")
_EXCLUDED: Final = ("serialization_exclude", "serialization_exclude_if")
_BY_NAME: Final = ("validate_by_name", "populate_by_name")

Node = dict[str, Any]
Config = Mapping[str, Any]


class SchemaCopy:
    """A copy of a core schema; what subclasses change in it does not reach the user's classes."""

    def __init__(self, schema: Any) -> None:
        self.schema: Final[Any] = self.copy(schema, {})

    def copy(self, node: Any, config: Config, name: str = "") -> Any:
        """Return a changed copy; `config` is that of the type around it, `name` the name of a field."""
        if type(node) in (list, tuple):
            parts = cast("list[Any] | tuple[Any, ...]", node)
            return type(parts)(self.copy(part, config) for part in parts)
        if not isinstance(node, Mapping):
            return node
        node = cast("Mapping[str, Any]", node)
        if not isinstance(node.get("type"), str):  # fields or choices by name
            return {name: self.copy(part, config, name) for name, part in node.items()}
        config = node.get("config") or config
        replacement = self.replace(node, config)
        if replacement is not None:
            return replacement
        copied = {key: part if key in _VALUES else self.copy(part, config) for key, part in node.items()}
        self.change(copied, config, copied.get("name", name))
        return copied

    def replace(self, node: Mapping[str, Any], config: Config) -> Any:
        """Return what the copy has instead of this node, or None to copy the node part by part."""
        del node, config

    def change(self, node: Node, config: Config, name: str) -> None:
        """Change a node that has been copied, after its parts."""


class _Renamed(SchemaCopy):
    """A copy with other names for its fields."""

    def __init__(self, schema: Any) -> None:
        self.differs = False
        """Whether anything was changed."""
        self.obstacle: str | None = None
        """The field that makes such a copy impossible."""
        super().__init__(schema)

    def _put(self, node: Node, key: str, value: Any) -> None:
        """Set a key, or remove it with None."""
        self.differs |= node.get(key) != value
        node.pop(key, None)
        if value is not None:
            node[key] = value


class AsRead(_Renamed):
    """Writes values in the form that is read: under those names, without computed fields.

    Fields with `exclude=True` are left out if the reader has a default for them. For examples, which everyone can see
    (`is_shown`), they are always left out.
    """

    def __init__(self, schema: Any, *, is_shown: bool) -> None:
        self._is_shown: Final = is_shown
        super().__init__(schema)

    def change(self, node: Node, config: Config, name: str) -> None:
        """Give a field the name that it is read by; drop computed fields."""
        if node["type"] not in _FIELDS:
            self._put(node, "computed_fields", None)
            return
        aliases = None if config.get("validate_by_alias") is False else node.get("validation_alias")
        alias = _plain_name(aliases)
        if aliases is not None and alias is None and not any(map(config.get, _BY_NAME)):
            self.obstacle = name
        self._put(node, "serialization_alias", alias)
        if not self._is_shown:
            self._put(node, _EXCLUDED[1], None)
            if not _has_default(node):
                self._put(node, _EXCLUDED[0], None)
        if node.get("init") is False:
            self._put(node, _EXCLUDED[0], True)


class AsWritten(_Renamed):
    """Reads values as they were written: by those names, ignoring computed fields.

    The names that fields are read by elsewhere stay valid: `predict` may have returned a dict with those.
    """

    def __init__(self, schema: Any) -> None:
        self._renamed: Final[set[str]] = set()
        self._discriminators: Final[set[str]] = set()
        super().__init__(schema)
        # A field that selects the type of a union must have the name that the union knows.
        self.obstacle = self.obstacle or next(iter(self._renamed & self._discriminators), None)

    def change(self, node: Node, config: Config, name: str) -> None:
        """Add the name that a field was written under; ignore computed fields."""
        if node["type"] in _FIELDS:
            self._change_field(node, name)
            return
        if isinstance(node.get("discriminator"), str):
            self._discriminators.add(node["discriminator"])
        if node.get("config", {}).get("validate_by_alias") is False:
            self._put(node, "config", node["config"] | {"validate_by_alias": True})
        extra = node.get("extra_behavior") or config.get("extra_fields_behavior")
        if node.get("computed_fields") and extra == "forbid":
            self._put(node, "extra_behavior", "ignore")

    def _change_field(self, field: Node, name: str) -> None:
        read, written = field.get("validation_alias"), field.get("serialization_alias")
        if read != written:
            self._renamed.add(_plain_name(read) or name)
            paths = _paths(written or name) + _paths(read or name)
            self._put(field, "validation_alias", [path for i, path in enumerate(paths) if path not in paths[:i]])
        if any(map(field.get, _EXCLUDED)) and not _has_default(field):
            self.obstacle = name


def _has_default(field: Node) -> bool:
    schema = field["schema"]
    while schema["type"].startswith("function-") and "schema" in schema:  # validators of the field
        schema = schema["schema"]
    return field.get("required") is False or schema["type"] == "default"


def _paths(aliases: Any) -> list[list[Any]]:
    """Return one alias, an AliasPath or AliasChoices as a list of paths."""
    if isinstance(aliases, str):
        return [[aliases]]
    return list(aliases) if isinstance(aliases[0], list) else [aliases]


def _plain_name(aliases: Any) -> str | None:
    """Return the first alias that is a name, not a path into another value (AliasPath); None if there is none."""
    if aliases is None:
        return None
    return next((path[0] for path in _paths(aliases) if len(path) == 1 and isinstance(path[0], str)), None)
