"""Types that pydantic validates, with bytes as they are for all other types: base64 in JSON, bytes everywhere else.

A program's values are sent under the names that they are read by, and answers read by those they were written under.

By itself pydantic takes the text in JSON for the bytes. Its own `val_json_bytes` is said per model, not for those
inside of it, and writes another alphabet. So the schema of a type is changed here, in a copy, and the user's classes
stay as they are. Imported only when a type of pydantic's is met: whoever uses one has imported pydantic.
"""

import base64
import binascii
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any, Final, Literal, cast

from pydantic import Base64Encoder, EncodedBytes, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import (
    PydanticSerializationUnexpectedValue,
    SchemaSerializer,
    SchemaValidator,
    ValidationError,
    to_json,
)

from jitney.pydantic_names import HELD, LOST, AsRead, AsWritten

Fallback = Callable[[Any], Any]
_TOKEN: Final = f"{secrets.token_hex(8)}:"
"""Marks bytes in what is otherwise as in JSON; no text of a user's begins with it."""
_OURS: Final = {"jitney": "base64"}
_OF_THEMSELVES: Final = frozenset({"lax_schema", "strict_schema", "json_schema", "python_schema"})
_BUILDING: Final = Lock()


class Adapter:
    """Reads and writes values of one type; without bytes in it, exactly as pydantic does."""

    def __init__(self, kind: Any) -> None:
        self._name: Final = getattr(kind, "__qualname__", str(kind))
        self._adapter: Final[TypeAdapter[Any]] = TypeAdapter(kind)
        copier = _Copier()
        self._schema: Final[Any] = copier.copy(self._adapter.core_schema, {})
        validator: Any = self._adapter.validator
        serializer: Any = self._adapter.serializer
        self._classes: Final = copier.classes
        self._has_bytes: Final = copier.has_bytes
        self._own_init: Final = copier.own_init
        self._is_read_as_json: Final = _is_strict(self._schema) and not copier.has_other_bytes
        if self._has_bytes:
            with _built_anew(copier.classes):
                validator, serializer = SchemaValidator(self._schema), SchemaSerializer(self._schema)
        self.validate_json: Final = validator.validate_json
        self.validate_python: Final = validator.validate_python
        self.validate_unpacked: Final = self._unpacked(validator)
        """Validates what msgpack said."""
        self._serializer: Final = serializer

    @cached_property
    def _sender(self) -> Any:
        """Writes values as they are read; None if a field of theirs has no name of its own there."""
        return self._written_by(AsRead(self._schema))

    @cached_property
    def _shower(self) -> Any:
        return self._written_by(AsRead(self._schema, is_shown=True))

    def _written_by(self, names: AsRead) -> Any:
        if not names.is_possible:
            return None
        if not names.differs:
            return self._serializer
        with _built_anew(self._classes):
            return SchemaSerializer(names.schema)

    @cached_property
    def read_answer(self) -> Callable[[Any], Any]:
        """Make what came back a value of this type; it stays as it came if answers lack what the type needs."""
        names = AsWritten(self._schema)
        if not names.is_possible or (names.differs and self._own_init is not None):
            return _itself
        if not names.differs:
            return self.validate_unpacked
        with _built_anew(self._classes):
            return self._unpacked(SchemaValidator(names.schema))

    def _unpacked(self, validator: Any) -> Callable[[Any], Any]:
        if not self._is_read_as_json:
            return validator.validate_python

        def validate(value: Any) -> Any:
            try:
                return validator.validate_python(value)
            except ValidationError as error:
                # Strict, pydantic takes a text for a date, or a list for a tuple, only if it is in JSON. The price: in
                # a value with such a one, bytes under `Any` become base64, and numbers that are keys there text.
                try:
                    as_json = to_json(value, bytes_mode="base64")
                except ValueError:
                    raise error from None
                return validator.validate_json(as_json)

        return validate

    def to_json(self, value: Any, fallback: Fallback | None = None) -> bytes:
        """Write a value as JSON; `fallback` makes known what pydantic does not know."""
        return self._serializer.to_json(value, by_alias=True, fallback=fallback)

    def to_plain(self, value: Any, fallback: Fallback | None = None) -> Any:
        """Return a value as in JSON, but with its bytes as bytes."""
        return self._plain(self._serializer, value, fallback)

    def to_sent(self, value: Any, fallback: Fallback | None = None, *, is_shown: bool = False) -> Any:
        """Do the same for a value that is to be read; of bytes that its types say nothing of, it takes any."""
        sender = self._shower if is_shown else self._sender
        if sender is None:
            raise TypeError(f"{self._name}: a field is read from inside of another (AliasPath); pass a dict like that")
        lost: list[str] = []
        token = LOST.set(lost)
        try:
            written = self._plain(sender, value, fallback)
        except ValueError:
            written = sender.to_python(value, by_alias=True)
        finally:
            LOST.reset(token)
        if lost:
            raise TypeError(f"`{lost[0]}` is read from inside of another value (AliasPath); pass a dict like that")
        return written

    def _plain(self, serializer: Any, value: Any, fallback: Fallback | None) -> Any:
        context = {_TOKEN: True} if self._has_bytes else None
        plain = serializer.to_python(value, mode="json", by_alias=True, context=context, fallback=fallback)
        return _lifted(plain) if self._has_bytes else plain

    def json_schema(self, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
        """Describe the type as it is in JSON; TypeError if bytes in it cannot be read from there."""
        if mode == "validation" and self._has_bytes and self._own_init is not None:
            # Such a model gives its input to its own `__init__`, and so past the schema from here.
            raise TypeError(
                f"{self._own_init.__qualname__} has an `__init__` of its own, which would get base64 for the bytes; "
                "use a validator or model_post_init instead"
            )
        return _JsonSchema().generate(self._schema, mode)


@lru_cache(maxsize=1024)
def adapter_of(kind: Any) -> Adapter:
    """Return the adapter of a class; answers ask for it."""
    return Adapter(kind)


def _itself(value: Any) -> Any:
    return value


class _Copier:
    """Copies a core schema, and makes base64 of the bytes in it."""

    def __init__(self) -> None:
        self.has_bytes = False
        self.has_other_bytes = False
        """Bytes that are no base64 in JSON."""
        self.classes: set[type[Any]] = set()
        self.own_init: type[Any] | None = None

    def copy(self, node: Any, config: Mapping[str, Any], *, is_beside_text: bool = False) -> Any:
        if type(node) in (list, tuple):
            parts = cast("list[Any] | tuple[Any, ...]", node)
            return type(parts)(self.copy(part, config, is_beside_text=is_beside_text) for part in parts)
        if not isinstance(node, Mapping):
            return node
        node = cast("Mapping[str, Any]", node)
        kind = node.get("type")
        if not isinstance(kind, str):  # fields or choices by name
            return {name: self.copy(part, config) for name, part in node.items()}
        encoder = _encoder(node)
        config = node.get("config") or config
        if encoder is not None or kind == "bytes":
            is_of_users_choice = "hex" in (config.get("val_json_bytes"), config.get("ser_json_bytes"))
            if is_beside_text or (is_of_users_choice if encoder is None else encoder is not Base64Encoder):
                self.has_other_bytes = True
                return node
            self.has_bytes = True
            return _base64(node if encoder is None else node["schema"], node)
        if isinstance(node.get("cls"), type):
            self.classes.add(node["cls"])
        if node.get("custom_init"):
            self.own_init = node["cls"]
        # In a union with text pydantic itself says which of the two a text is.
        is_beside_text = kind == "union" and any(_kind_of(choice) == "str" for choice in node["choices"])
        return {
            key: part if key in HELD else self.copy(part, config, is_beside_text=is_beside_text)
            for key, part in node.items()
        }


def _is_strict(node: Any) -> bool:
    """Whether some of this is taken without conversion. How types do it inside of themselves is not looked at."""
    if isinstance(node, (list, tuple)):
        return any(map(_is_strict, cast("list[Any]", node)))
    if not isinstance(node, Mapping):
        return False
    node = cast("Mapping[str, Any]", node)
    if not isinstance(node.get("type"), str):  # fields or choices by name
        return any(map(_is_strict, node.values()))
    config: Mapping[str, Any] = node.get("config") or {}
    if node.get("strict") or config.get("strict"):
        return True
    return any(_is_strict(part) for key, part in node.items() if key not in HELD | _OF_THEMSELVES)


def _encoder(node: Mapping[str, Any]) -> Any:
    """Tell with what pydantic's own encoded bytes are encoded, such as those of Base64Bytes."""
    function = node.get("function")
    function = cast("Mapping[str, Any]", function).get("function") if isinstance(function, Mapping) else None
    owner = getattr(function, "__self__", None)
    return owner.encoder if isinstance(owner, EncodedBytes) else None


def _kind_of(choice: Any) -> Any:
    return cast("tuple[Any, ...]", choice)[0]["type"] if isinstance(choice, tuple) else choice["type"]


def _base64(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> dict[str, Any]:
    text = {"type": "str", "metadata": _OURS}
    write = {"type": "function-plain", "function": _write, "info_arg": True, "when_used": "json", "return_schema": text}
    own = {key: value for key, value in inner.items() if key != "ref"}
    own = {"serialization": write, **own, "metadata": {**inner.get("metadata", {}), **_OURS}}
    schema = {"type": "function-before", "function": {"type": "no-info", "function": _read}, "schema": own}
    return {**schema, "ref": outer["ref"]} if "ref" in outer else schema


def _read(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        # Pydantic writes `-` and `_` where others write `+` and `/`.
        return base64.b64decode(value.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"expected base64: {error}") from None


def _write(value: Any, info: Any) -> str:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise PydanticSerializationUnexpectedValue(f"expected bytes, got {type(value).__qualname__}")
    text = base64.b64encode(cast("bytes", value)).decode()
    return _TOKEN + text if info.context and _TOKEN in info.context else text


def _lifted(value: Any) -> Any:
    if isinstance(value, str):
        return base64.b64decode(value[len(_TOKEN) :]) if value.startswith(_TOKEN) else value
    if isinstance(value, dict):
        # Names of entries are text in JSON and msgpack alike.
        return {str(key).removeprefix(_TOKEN): _lifted(part) for key, part in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_lifted(part) for part in cast("list[Any]", value)]
    return value


@contextmanager
def _built_anew(classes: Iterable[type[Any]]) -> Generator[None]:
    """Keep pydantic (2.11 and newer) from taking the validators that these classes have, whatever the schema says."""
    with _BUILDING:  # another thread would take for incomplete what it finds so
        complete: Any = [kind for kind in classes if vars(kind).get("__pydantic_complete__")]
        for kind in complete:
            kind.__pydantic_complete__ = False
        try:
            yield
        finally:
            for kind in complete:
                kind.__pydantic_complete__ = True


class _JsonSchema(GenerateJsonSchema):
    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        return _described(schema) or super().bytes_schema(schema)

    def str_schema(self, schema: Any) -> dict[str, Any]:
        return _described(schema) or super().str_schema(schema)

    def encode_default(self, dft: Any) -> Any:
        return base64.b64encode(dft).decode() if isinstance(dft, bytes) else super().encode_default(dft)


def _described(schema: Mapping[str, Any]) -> dict[str, Any]:
    is_ours = schema.get("metadata", {}).keys() >= _OURS.keys()
    return {"type": "string", "contentEncoding": "base64"} if is_ours else {}
