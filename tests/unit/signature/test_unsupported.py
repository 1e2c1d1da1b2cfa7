"""What only pydantic reads is refused where msgspec would pass over it, with the field and what to write."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Generic, NewType, NotRequired, TypedDict, TypeVar

import annotated_types
import jitney
import msgspec
import pydantic
import pytest
from jitney.errors import TargetError
from jitney.signature.annotations import read_signature
from jitney.signature.unsupported import remedy
from PIL import Image
from pydantic import AfterValidator, Field, PositiveInt, StrictInt, conint, constr
from typing_extensions import TypeAliasType


@dataclasses.dataclass
class OfField:
    a: Annotated[int, Field(ge=1, le=5)] = 1


@dataclasses.dataclass
class OfTypes:
    a: Annotated[int, annotated_types.Ge(1), annotated_types.Le(5)] = 1


@dataclasses.dataclass
class Positive:
    a: PositiveInt = 1


@dataclasses.dataclass
class Bounded:
    a: conint(le=5) = 1  # type: ignore[valid-type]


class Struct(msgspec.Struct):
    a: list[constr(min_length=2, pattern="^a")]  # type: ignore[valid-type]


class Typed(TypedDict):
    a: NotRequired[Annotated[list[int], annotated_types.Len(0, 3)]]


@dataclasses.dataclass
class Checked:
    a: Annotated[int, AfterValidator(abs)] = 1


@dataclasses.dataclass
class Outer:
    inner: list[OfField]


@dataclasses.dataclass
class Named:
    a: Annotated[int, Field(alias="b")] = 1


@dataclasses.dataclass
class AsDefault:
    a: int = Field(1, ge=1)


class StructAsDefault(msgspec.Struct):
    a: int = Field(1, ge=1)


@dataclasses.dataclass
class Fine:
    a: Annotated[int, Field(description="how many"), msgspec.Meta(ge=1)]
    b: StrictInt = 1


class Model(pydantic.BaseModel):
    a: int = Field(1, ge=1)
    b: Annotated[int, AfterValidator(abs)] = 1


def taking(item: Any, answer: Any = Any) -> Callable[..., Any]:
    def predict(items: list[Any]) -> Any: ...

    predict.__annotations__ = {"items": list[item], "return": answer}
    return predict


Few = NewType("Few", Annotated[int, Field(le=5)])  # pyright: ignore[reportGeneralTypeIssues]
Aliased = TypeAliasType("Aliased", list[Annotated[int, Field(le=5)]])

REFUSED: list[Any] = [
    (Image.Image, r"an image comes as jitney.Image: write list[jitney.Image], and image.to_pil() in predict"),
    (list[Image.Image], "an image comes as jitney.Image: write that, and image.to_pil() in predict"),
    (OfField, "OfField.a: only pydantic reads Field(ge=1, le=5); write msgspec.Meta(ge=1, le=5), or make OfField a"),
    (OfTypes, "OfTypes.a: only pydantic reads Ge(ge=1), Le(le=5); write msgspec.Meta(ge=1, le=5), or make OfTypes a"),
    (Positive, "Positive.a: only pydantic reads Gt(gt=0); write msgspec.Meta(gt=0), or make Positive a pydantic model"),
    (
        Bounded,
        "Bounded.a: only pydantic reads Interval(le=5); write msgspec.Meta(le=5), or make Bounded a pydantic model",
    ),
    (Struct, "write msgspec.Meta(min_length=2, pattern='^a'), or make Struct a pydantic model"),
    (Typed, "Typed.a: only pydantic reads Len(max_length=3); write msgspec.Meta(max_length=3), or make Typed a"),
    (Checked, "Checked.a: only pydantic reads AfterValidator(func=abs); make Checked a pydantic model, or check it in"),
    (Outer, "OfField.a: only pydantic reads Field(ge=1, le=5)"),
    (Named, "Named.a: only pydantic reads Field(alias='b'); make Named a pydantic model"),
    (AsDefault, "AsDefault.a: only pydantic reads `= Field(...)`"),
    (StructAsDefault, "StructAsDefault.a: only pydantic reads `= Field(...)`"),
    (
        Annotated[int, Field(le=5)],
        "only pydantic reads Field(le=5); write msgspec.Meta(le=5), or take a pydantic model",
    ),
    (list[list[Annotated[int, Field(le=5)]]], "only pydantic reads Field(le=5); write msgspec.Meta(le=5), or take a"),
    (list[Few], "only pydantic reads Field(le=5)"),
    (Aliased, "only pydantic reads Field(le=5)"),
    (Annotated[str, Field(max_length=5)], "only pydantic reads Field(max_length=5); write msgspec.Meta(max_length=5)"),
]


@pytest.mark.parametrize(("item", "said"), REFUSED)
def test_a_constraint_that_would_be_passed_over_is_refused_with_what_to_write(item: Any, said: str) -> None:
    with pytest.raises(TargetError) as raised:
        read_signature(taking(item))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("item", [Fine, Model, list[Model], dict[str, Model], Annotated[int, msgspec.Meta(le=5)]])
def test_what_is_held_to_is_taken(item: Any) -> None:
    assert read_signature(taking(item)).input.kind == "object"


def test_a_field_of_pydantic_as_a_default_is_no_answer() -> None:
    with pytest.raises(TargetError, match=r"AsDefault\.a: only pydantic reads"):
        read_signature(taking(str, list[dict[str, AsDefault]]))
    assert read_signature(taking(str, list[Model])).output.kind == "object"
    assert read_signature(taking(str, list[OfField])).output.kind == "object"


T = TypeVar("T")


class Box(msgspec.Struct, Generic[T]):
    value: T
    picture: jitney.Image | str


def test_a_field_of_a_generic_class_is_looked_at_too() -> None:
    for kind in (Box, Box[int], list[Box[Box[str]]]):
        assert str(remedy(kind)).startswith("Box.picture: an image or an array may stand in a union with None only")
