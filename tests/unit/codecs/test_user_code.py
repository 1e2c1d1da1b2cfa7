"""Whether decoding an item may run code of the user's: such items are decoded on the thread of `predict`."""

import dataclasses
import datetime
import enum
from typing import Annotated, Any, Literal, TypedDict

import jitney
import msgspec
import pydantic
import pytest
from jitney.codecs import Codec
from jitney.config.layers import DeploymentOptions
from jitney.signature.annotations import read_signature


class Color(enum.Enum):
    RED = "red"


class Lenient(enum.Enum):
    RED = "red"

    @classmethod
    def _missing_(cls, value: object) -> "Lenient":
        return cls.RED


class Plain(msgspec.Struct):
    word: Annotated[str, msgspec.Meta(max_length=3)]
    color: Color = Color.RED
    more: list[int] = []
    when: datetime.datetime | None = None


class After(Plain):
    def __post_init__(self) -> None: ...


class Holds(TypedDict):
    inner: list[dict[str, After | None]]


@dataclasses.dataclass
class Usual:
    words: list[str] = dataclasses.field(default_factory=list[str])


@dataclasses.dataclass
class Made:
    words: list[str] = dataclasses.field(default_factory=lambda: ["a"])


class Model(pydantic.BaseModel):
    word: Annotated[str, pydantic.Field(max_length=3)]
    kind: Literal["a", "b"] = "a"
    raw: bytes = b""
    encoded: pydantic.Base64Bytes = b""
    more: list["Model"] = pydantic.Field(default_factory=list["Model"])

    @pydantic.field_serializer("kind")
    def write(self, kind: str) -> str:
        return kind


class Validated(Model):
    @pydantic.model_validator(mode="after")
    def check(self) -> "Validated":
        return self


class Initialized(Model):
    def model_post_init(self, _: Any) -> None: ...


class Annotates(pydantic.BaseModel):
    inner: dict[str, Annotated[int, pydantic.AfterValidator(lambda value: value + 1)]]


CASES: list[tuple[Any, bool]] = [
    (str, False),
    (bytes, False),
    (jitney.Image, False),
    (dict[str, Any], False),
    (Plain, False),
    (list[Usual], False),
    (Model, False),
    (Lenient, True),
    (After, True),
    (Holds, True),
    (Made, True),
    (Validated, True),
    (list[Initialized], True),
    (Annotates, True),
]


@pytest.mark.parametrize(("item", "expected"), CASES)
def test_functions_of_users_are_found_in_types(item: Any, expected: bool) -> None:
    def predict(items: Any) -> Any: ...

    predict.__annotations__ = {"items": list[item], "return": list[str]}
    assert Codec(read_signature(predict), DeploymentOptions()).decode_runs_user_code is expected
