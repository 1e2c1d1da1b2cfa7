"""What is sent: the items of a file or a folder, each with its type. Knows no server."""

import base64
import codecs
import io
import json
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jitney.errors import ConfigError

JSON = "application/json"
TEXT = "text/plain"
OCTETS = "application/octet-stream"
NPY = "application/x-npy"
MSGPACK = "application/msgpack"


@dataclass(frozen=True, slots=True)
class Item:
    """One item as a client would send it."""

    content_type: str
    body: bytes

    def document(self) -> Any:
        """Return the item as JSON has it, for protocols that put several into one document; bytes are base64."""
        kind = self.content_type.partition(";")[0].strip().lower()
        try:
            return self._document(kind)
        except (ValueError, EOFError, RecursionError) as error:
            raise ConfigError(f"an item of type {kind!r} cannot be read: {error}") from None

    def _document(self, kind: str) -> Any:
        if kind == JSON:
            return json.loads(self.body)
        if kind == TEXT:
            return self.body.decode()
        if kind == NPY:
            import numpy as np  # noqa: PLC0415 - heavy, and every `jitney serve` imports this file

            return np.load(io.BytesIO(self.body), allow_pickle=False).tolist()
        if kind == MSGPACK:
            raise ConfigError(
                f"an item of type {self.content_type!r} is not turned into JSON, as this protocol needs it: "
                "give the items as .jsonl, or send them with --protocol native"
            )
        return base64.b64encode(self.body).decode()


def of_documents(documents: Sequence[object]) -> list[Item]:
    """Return examples as items."""
    return [Item(JSON, json.dumps(document, ensure_ascii=False).encode()) for document in documents]


def read(path: str, content_type: str | None) -> list[Item]:
    """Read a folder (one item per file), a file of lines (.jsonl, .ndjson, .txt), or a file that is one item."""
    try:
        return _read(path, content_type)
    except OSError as error:
        raise ConfigError(f"--input {path} cannot be read: {error}; name a file or a folder of files") from None


def _read(path: str, content_type: str | None) -> list[Item]:
    place = Path(path)
    if place.is_dir():
        files = [file for file in sorted(place.iterdir()) if file.is_file() and not file.name.startswith(".")]
        items = [_whole(file, content_type) for file in files]
        if not items:
            raise ConfigError(f"--input {path}: the folder has no files in it (hidden ones do not count)")
        return items
    if not place.is_file():
        raise ConfigError(f"--input {path}: there is no such file or folder")
    if place.suffix in (".jsonl", ".ndjson"):
        return [Item(content_type or JSON, _checked(path, *line)) for line in _lines(path, place)]
    if place.suffix == ".txt":
        return [Item(content_type or TEXT, line) for _, line in _lines(path, place)]
    return [_whole(place, content_type)]


def _lines(path: str, place: Path) -> list[tuple[int, bytes]]:
    text = place.read_bytes().removeprefix(codecs.BOM_UTF8)  # as some editors begin a file
    numbered = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    found = [(number, line) for number, line in numbered if line]
    if not found:
        raise ConfigError(f"--input {path}: the file is empty")
    return found


def _checked(path: str, number: int, line: bytes) -> bytes:
    try:
        json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--input {path}: line {number} is not JSON: {error}") from None
    return line


def _whole(file: Path, content_type: str | None) -> Item:
    known = NPY if file.suffix == ".npy" else mimetypes.guess_type(file.name)[0]
    return Item(content_type or known or OCTETS, file.read_bytes())
