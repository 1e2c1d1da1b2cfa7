"""Bytes in pydantic's types: base64 in JSON, as in all other structs; bytes everywhere else.

By itself pydantic takes the text in JSON for the bytes, and fails to write bytes that are not text. Its own setting
(`val_json_bytes`, `ser_json_bytes`) is one of each model, not of the models inside of it, and writes another alphabet.
"""

import base64
import secrets
from collections.abc import Mapping
from typing import Any, Final, cast, get_origin

from pydantic import Base64Encoder, EncodedBytes
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationUnexpectedValue

from jitney.signature.pydantic.core_schema import Config, Node, SchemaCopy
from jitney.types.base64 import from_base64

TOKEN: Final = f"{secrets.token_hex(8)}:"
"""Marks the base64 of bytes in a value that is written as in JSON; no text of a user's begins with it."""
_OURS: Final = {"jitney": "base64"}


class Base64Copy(SchemaCopy):
    """A copy of a core schema in which bytes are base64 in JSON, unless the user chose another form."""

    def __init__(self, schema: Any) -> None:
        self.has_bytes = False
        self.has_other_bytes = False
        """Bytes that are not base64 in JSON."""
        self.own_init: type[Any] | None = None
        """A class that defines `__init__`."""
        self.runs_functions = False
        """Whether reading a value may call functions: validators, factories of defaults, and the like."""
        super().__init__(schema)

    def replace(self, node: Mapping[str, Any], config: Config) -> Any:
        """Return the schema of base64 for that of bytes."""
        encoder = _encoder(node)
        if encoder is not None or node["type"] == "bytes":
            has_hex = "hex" in (config.get("val_json_bytes"), config.get("ser_json_bytes"))
            if has_hex if encoder is None else encoder is not Base64Encoder:
                self.has_other_bytes = True
                return node
            self.has_bytes = True
            return _base64(node if encoder is None else node["schema"], node)
        if node["type"] == "union" and any(_schema_of(choice)["type"] == "str" for choice in node["choices"]):
            # In a union with text pydantic's own rules say which of the two a text is.
            self.has_other_bytes |= any(map(_is_bytes, node["choices"]))
            choices = [choice if _is_bytes(choice) else self.copy(choice, config) for choice in node["choices"]]
            return {**node, "choices": choices}
        return None

    def change(self, node: Node, config: Config, name: str) -> None:
        """Note what runs code of the user's."""
        if node.get("custom_init"):
            self.own_init = node["cls"]
        is_function = node.get("custom_init") or node.get("post_init") or any(map(_is_function, node.values()))
        if "function" in node or is_function:
            self.runs_functions = True


def restore_bytes(value: Any) -> Any:
    """Return a value as in JSON with its marked texts as bytes again."""
    if isinstance(value, str):
        return base64.b64decode(value[len(TOKEN) :]) if value.startswith(TOKEN) else value
    if isinstance(value, dict):
        # Keys are text in both JSON and msgpack.
        return {
            str(key).removeprefix(TOKEN): restore_bytes(part) for key, part in cast("dict[Any, Any]", value).items()
        }
    if isinstance(value, list):
        return [restore_bytes(part) for part in cast("list[Any]", value)]
    return value


class Base64JsonSchema(GenerateJsonSchema):
    """Describes bytes as base64."""

    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        """Describe bytes that come in."""
        return _described(schema) or super().bytes_schema(schema)

    def str_schema(self, schema: Any) -> dict[str, Any]:
        """Describe bytes that go out."""
        return _described(schema) or super().str_schema(schema)

    def encode_default(self, dft: Any) -> Any:
        """Write a default as JSON has it."""
        return base64.b64encode(dft).decode() if isinstance(dft, bytes) else super().encode_default(dft)


def _described(schema: Mapping[str, Any]) -> dict[str, Any]:
    is_ours = schema.get("metadata", {}).keys() >= _OURS.keys()
    return {"type": "string", "contentEncoding": "base64"} if is_ours else {}


def _encoder(node: Mapping[str, Any]) -> Any:
    """Return the encoder of pydantic's own encoded bytes, such as Base64Bytes; None for other nodes."""
    function = node.get("function")
    function = cast("Mapping[str, Any]", function).get("function") if isinstance(function, Mapping) else None
    owner = getattr(function, "__self__", None)
    return owner.encoder if isinstance(owner, EncodedBytes) else None


def _is_function(part: Any) -> bool:
    """Whether this is a function in a schema, such as the factory of a default; a class, such as `list`, is not."""
    return callable(part) and not isinstance(get_origin(part) or part, type)


def _is_bytes(choice: Any) -> bool:
    schema = _schema_of(choice)
    return schema["type"] == "bytes" or _encoder(schema) is not None


def _schema_of(choice: Any) -> Mapping[str, Any]:
    """Return the schema of one choice of a union, which may come with a label."""
    return cast("tuple[Any, ...]", choice)[0] if isinstance(choice, tuple) else choice


def _base64(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> Node:
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
        return from_base64(value.replace("-", "+").replace("_", "/"))
    except ValueError as error:
        raise ValueError(f"expected base64: {error}") from None


def _write(value: Any, info: Any) -> str:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise PydanticSerializationUnexpectedValue(f"expected bytes, got {type(value).__qualname__}")
    text = base64.b64encode(cast("bytes", value)).decode()
    return TOKEN + text if info.context and TOKEN in info.context else text
