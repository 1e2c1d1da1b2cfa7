"""Reads and writes values of pydantic's types. Imported only for such a type: pydantic is imported already then.

What has to differ from pydantic's own rules (bytes, names of fields) is changed in a copy of the type's core schema.
The user's classes are not changed.
"""

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Final, Literal

import pydantic
from pydantic import TypeAdapter
from pydantic_core import SchemaSerializer, SchemaValidator, ValidationError, to_json

from jitney.errors import TargetError
from jitney.signature.pydantic.base64 import TOKEN, Base64Copy, Base64JsonSchema, restore_bytes
from jitney.signature.pydantic.core_schema import AsRead, AsWritten

LOWEST: Final = (2, 13)
"""The first version of pydantic that builds a validator without those that the user's classes have already."""
Fallback = Callable[[Any], Any]


class Adapter:
    """Reads and writes values of one type; without bytes in it, exactly as pydantic does."""

    def __init__(self, kind: Any) -> None:
        _check_version(pydantic.VERSION)
        adapter = TypeAdapter[Any](kind)
        self._copy: Final = Base64Copy(adapter.core_schema)
        has_bytes = self._copy.has_bytes
        self._serializer: Final[Any] = _serializer(self._copy.schema) if has_bytes else adapter.serializer
        validator: Any = _validator(self._copy.schema) if has_bytes else adapter.validator
        self.validate_json: Final = validator.validate_json
        self.validate_python: Final = validator.validate_python
        self.validate_unpacked: Final = self._unpacked(validator)
        """Validates what was decoded from msgpack."""
        self.runs_functions: Final = self._copy.runs_functions
        """Whether reading a value may call functions, such as validators."""

    @cached_property
    def read_answer(self) -> Callable[[Any], Any]:
        """Make an answer that came back a value of this type; it stays unchanged if it lacks what the type needs."""
        names = AsWritten(self._copy.schema)
        if names.obstacle is not None or (names.differs and self._copy.own_init is not None):
            return _itself
        return self._unpacked(_validator(names.schema)) if names.differs else self.validate_unpacked

    def _unpacked(self, validator: Any) -> Callable[[Any], Any]:
        if self._copy.has_other_bytes:
            return validator.validate_python

        def validate(value: Any) -> Any:
            try:
                return validator.validate_python(value)
            except ValidationError as error:
                # A strict type takes a text for a date, or a list for a tuple, only from JSON. The price: in such a
                # value, bytes in a field of type `Any` become base64, and numbers that are keys become text.
                try:
                    as_json = to_json(value, bytes_mode="base64")
                except ValueError:
                    raise error from None
                return validator.validate_json(as_json)

        return validate

    def to_json(self, value: Any, fallback: Fallback | None = None) -> bytes:
        """Write a value as JSON; `fallback` converts what pydantic does not know."""
        return self._serializer.to_json(value, by_alias=True, fallback=fallback)

    def to_plain(self, value: Any, fallback: Fallback | None = None) -> Any:
        """Return a value as in JSON, but with its bytes as bytes."""
        return self._plain(self._serializer, value, fallback)

    def to_sent(self, value: Any, fallback: Fallback | None = None, *, is_shown: bool = False) -> Any:
        """Return a value as `to_plain` does, under the names that it is read by; TypeError if a field has none."""
        sender = self._shower if is_shown else self._sender
        try:
            return self._plain(sender, value, fallback)
        except ValueError:  # bytes in a field of type `Any` that are not text
            return sender.to_python(value, by_alias=True)

    @cached_property
    def _sender(self) -> Any:
        return self._written_as_read(is_shown=False)

    @cached_property
    def _shower(self) -> Any:
        return self._written_as_read(is_shown=True)

    def _written_as_read(self, *, is_shown: bool) -> Any:
        names = AsRead(self._copy.schema, is_shown=is_shown)
        if names.obstacle is not None:
            raise TypeError(
                f"`{names.obstacle}` is read from inside another value (AliasPath); pass a dict like a client's"
            )
        return _serializer(names.schema) if names.differs else self._serializer

    def _plain(self, serializer: Any, value: Any, fallback: Fallback | None) -> Any:
        context = {TOKEN: True} if self._copy.has_bytes else None
        plain = serializer.to_python(value, mode="json", by_alias=True, context=context, fallback=fallback)
        return restore_bytes(plain) if self._copy.has_bytes else plain

    def json_schema(self, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
        """Describe the type's form in JSON; TypeError if bytes in it cannot be read from there."""
        own_init = self._copy.own_init
        if mode == "validation" and self._copy.has_bytes and own_init is not None:
            # pydantic passes the input to that `__init__`, and not through the changed schema.
            raise TypeError(
                f"{own_init.__qualname__} has its own `__init__`, which would get base64 for the bytes; "
                "use a validator or model_post_init instead"
            )
        return Base64JsonSchema().generate(self._copy.schema, mode)


@lru_cache(maxsize=1024)
def adapter_of(kind: Any) -> Adapter:
    """Return the adapter of a class; made once for each class of an answer."""
    return Adapter(kind)


def _check_version(version: str) -> None:
    if tuple(map(int, version.split(".")[:2])) < LOWEST:
        lowest = ".".join(map(str, LOWEST))
        raise TargetError(
            f"pydantic {version} is installed, and jitney needs {lowest} or newer: pip install -U pydantic"
        )


def _itself(value: Any) -> Any:
    return value


# `_use_prebuilt`: else pydantic takes the validators that the classes have, whatever the changed schema says.
def _validator(schema: Any) -> Any:
    return SchemaValidator(schema, _use_prebuilt=False)


def _serializer(schema: Any) -> Any:
    return SchemaSerializer(schema, _use_prebuilt=False)
