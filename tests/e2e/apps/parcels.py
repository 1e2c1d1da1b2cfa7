"""Structs with bytes in them, as msgspec and pydantic have them; images; one array and two."""

from typing import Any

import jitney
import msgspec
import numpy as np
import pydantic


class Parcel(msgspec.Struct):
    name: str
    data: bytes
    count: int = 1
    weight: float | None = None
    is_fragile: bool = False
    tags: list[str] = []
    note: str | None = None
    sizes: list[int] | None = None
    words: str | list[int] = ""


@jitney.deployment
def parcels(items: list[Parcel]) -> list[dict[str, object]]:
    return [{**msgspec.structs.asdict(item), "data": list(item.data)} for item in items]


class Letter(pydantic.BaseModel):
    to: str
    pages: list[int] = []


@jitney.deployment
def letters(items: list[Letter]) -> list[Letter]:
    return items


class Photo(pydantic.BaseModel):
    image: bytes
    seal: pydantic.Base64Bytes = b""


@jitney.deployment(examples=[Photo(image=b"\xff\xfe")])
def photos(items: list[Photo]) -> list[Photo]:
    return [Photo.model_construct(image=item.image + b"\xff", seal=item.seal) for item in items]


@jitney.deployment
def kinds(items: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Has fields of any type."""
    return [{name: type(value).__name__ for name, value in item.items()} for item in items]


class Scan(msgspec.Struct, tag="scan"):
    image: bytes


class Memo(msgspec.Struct, tag="memo"):
    text: str


@jitney.deployment
def papers(items: list[Scan | Memo]) -> list[int | str]:
    return [len(item.image) if isinstance(item, Scan) else item.text for item in items]


@jitney.deployment
def sizes(images: list[jitney.Image]) -> list[list[int]]:
    return [[image.width, image.height] for image in images]


@jitney.deployment
def lengths(files: list[bytes]) -> list[int]:
    return [len(file) for file in files]


@jitney.deployment
def shout(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]


@jitney.deployment
def add(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left + right
