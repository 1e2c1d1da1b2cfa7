"""`group_by` and `cost`: compiled when the front can evaluate them exactly, refused when it cannot."""

import dataclasses
import enum
from typing import Annotated, Any, Literal, NewType, NotRequired, TypedDict

import annotated_types
import msgspec
import numpy as np
import pydantic
import pytest
from jitney import bucket, length
from jitney.errors import TargetError
from jitney.signature.annotations import Input, read_signature
from jitney.signature.grouping import compile_cost, compile_group_by
from typing_extensions import TypeAliasType

Word = NewType("Word", str)
Positive = TypeAliasType("Positive", Annotated[int, pydantic.AfterValidator(abs)])


class Sampler(enum.Enum):
    DDIM = "ddim"
    EULER = "euler"


class Prompt(msgspec.Struct, rename="camel"):
    prompt: str
    tags: list[str]
    nested: dict[str, int]
    image_width: Annotated[int, msgspec.Meta(ge=8)] = 512
    guidance: float = 7
    style: Literal["photo", "paint"] | None = None
    mode: Literal["a", 1] = "a"
    fast: bool = False
    seed: int | str | None = None
    renamed: int = msgspec.field(default=1, name="wire")
    made: list[int] = msgspec.field(default_factory=list[int])
    mixed: Literal["a"] | int = 3
    text: str = "x"
    sampler: Sampler = Sampler.DDIM
    endless: float = float("inf")
    large: int = 2**64
    named: Word = Word("x")


class Model(pydantic.BaseModel):
    _private: int = 0
    plain: int = 3
    bounded: Annotated[int, annotated_types.Gt(0)] = pydantic.Field(5, le=9)
    aliased: int = pydantic.Field(5, alias="other")
    pattern: str = pydantic.Field("a", pattern="a", strict=True)
    prompt: str
    stripped: Annotated[str, pydantic.StringConstraints(strip_whitespace=True)] = "a"
    after: Annotated[int, pydantic.AfterValidator(abs)] = 1
    before: Annotated[int, pydantic.BeforeValidator(abs)] | None = 1
    nested: Annotated[int, pydantic.Field(ge=1)] | None = None
    positive: Positive = 1
    encoded: pydantic.Base64Str = "YQ=="
    checked: int = 1
    made: int = pydantic.Field(default_factory=lambda: 1)
    choices: int = pydantic.Field(1, validation_alias=pydantic.AliasChoices("a", "b"))

    @pydantic.field_validator("checked")
    @classmethod
    def check(cls, value: int) -> int:
        return value + 1


def declared(kind: Any) -> Input:
    def predict(x: Any) -> Any: ...

    predict.__annotations__["x"] = list[kind]
    return read_signature(predict).input


def field(kind: Any, name: str) -> dict[str, Any]:
    [term] = compile_group_by("d", [name], declared(kind))
    assert term["edges"] is None
    return term["source"]["field"]


NO_DEFAULT = object()


def source(name: str, types: list[str], default: Any, literals: list[Any] | None = None) -> dict[str, Any]:
    """As the manifest has it: without the key `default` if there is none, since null is the default None."""
    compiled: dict[str, Any] = {"name": name, "types": types, "literals": literals or []}
    return compiled if default is NO_DEFAULT else compiled | {"default": default}


@pytest.mark.parametrize(
    ("name", "compiled"),
    [
        ("prompt", source("prompt", ["str"], NO_DEFAULT)),
        ("image_width", source("imageWidth", ["int"], 512)),
        ("imageWidth", source("imageWidth", ["int"], 512)),
        ("guidance", source("guidance", ["float"], 7.0)),
        ("style", source("style", ["str", "none"], None, ["photo", "paint", None])),
        ("mode", source("mode", ["str", "int"], "a", ["a", 1])),
        ("fast", source("fast", ["bool"], False)),
        ("seed", source("seed", ["int", "str", "none"], None)),
        ("renamed", source("wire", ["int"], 1)),
        ("named", source("named", ["str"], "x")),
    ],
)
def test_fields_compile_to_their_wire_name_types_and_default(name: str, compiled: dict[str, Any]) -> None:
    assert field(Prompt, name) == compiled


@pytest.mark.parametrize("name", ["plain", "bounded", "pattern", "prompt", "nested"])
def test_fields_of_pydantic_that_only_have_constraints_compile(name: str) -> None:
    assert field(Model, name)["name"] == name
    assert field(Model, "aliased")["name"] == "other"


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (Prompt, "widht", "there is no field `widht`"),
        (Prompt, "image_widht", "did you mean `image_width`"),
        (Prompt, "made", "has a default_factory"),
        (Prompt, "nested", r"is dict\[str, int\]; it can be int"),
        (Prompt, "sampler", r"is the enum Sampler, which only Python knows; write Literal\['ddim', 'euler'\]"),
        (Prompt, "endless", "has the default inf"),
        (Prompt, "large", "has the default 18446744073709551616"),
        (Prompt, "mixed", "mixes a Literal"),
        (Model, "stripped", "may be changed by"),
        (Model, "after", "may be changed by AfterValidator"),
        (Model, "before", "may be changed by BeforeValidator"),
        (Model, "positive", "may be changed by AfterValidator"),
        (Model, "encoded", "may be changed by EncodedStr"),
        (Model, "checked", r"the validator Model\.check.*check such things in predict \(jitney\.InvalidInput\)"),
        (Model, "made", "has a default_factory"),
        (Model, "choices", "several names on the wire"),
        (str, "x", "only items that are structs have fields; these are text"),
        (dict[str, int], "x", "has no declared fields"),
    ],
)
def test_what_the_front_cannot_know_is_refused(kind: Any, name: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        field(kind, name)


def test_hooks_that_run_after_decoding_are_refused() -> None:
    class Hooked(msgspec.Struct):
        x: int = 1

        def __post_init__(self) -> None:
            self.x += 1

    @dataclasses.dataclass
    class HookedPlain:
        x: int = 1

        def __post_init__(self) -> None:
            self.x += 1

    class Whole(pydantic.BaseModel):
        x: int = 1

        @pydantic.model_validator(mode="after")
        def change(self) -> "Whole":
            return self

    class After(pydantic.BaseModel):
        x: int = 1

        def model_post_init(self, context: Any, /) -> None:
            self.x += 1

    class Lower(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(str_to_lower=True)
        x: str = "a"

    class TwoNames(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(populate_by_name=True)
        x: int = pydantic.Field(1, alias="y")

    class Positional(msgspec.Struct, array_like=True):
        x: int = 1

    class Optional(TypedDict):
        x: NotRequired[int]

    for kind, message in (
        (Hooked, r"__post_init__.*in predict \(jitney\.InvalidInput\)"),
        (HookedPlain, "__post_init__"),
        (Whole, r"Whole\.change"),
        (After, "model_post_init"),
        (Lower, "str_to_lower"),
        (TwoNames, "two names"),
        (Positional, "array_like"),
        (Optional, "may be missing"),
    ):
        with pytest.raises(TargetError, match=message):
            field(kind, "x")


def test_lengths_have_the_unit_of_their_type() -> None:
    def arrays(x: np.ndarray, y: np.ndarray) -> Any: ...

    several = read_signature(arrays).input
    for kind, term, compiled in (
        (declared(str), length(), {"of": None, "unit": "characters"}),
        (declared(str), length(unit="bytes"), {"of": None, "unit": "bytes"}),
        (declared(bytes), length(), {"of": None, "unit": "bytes"}),
        (declared(list[int]), length(), {"of": None, "unit": "axis"}),
        (declared(Word), length(), {"of": None, "unit": "characters"}),
        (declared(Prompt), length("prompt"), {"of": "prompt", "unit": "characters"}),
        (declared(Prompt), length("tags"), {"of": "tags", "unit": "axis"}),
        (several, length("y"), {"of": "y", "unit": "axis"}),
    ):
        assert compile_group_by("d", [term], kind) == [{"source": {"length": compiled}, "edges": None}]
    for kind, term, message in (
        (declared(bytes), length(unit="characters"), "counted in bytes, not in characters"),
        (declared(Prompt), length("text"), "has a default"),
        (declared(Prompt), length(), "only str, bytes, lists and arrays have a length"),
        (several, length(), "say which of the arrays: x, y"),
        (several, length("z"), "no array `z`"),
    ):
        with pytest.raises(TargetError, match=message):
            compile_group_by("d", [term], kind)


def test_buckets_and_costs_are_of_numbers() -> None:
    kind = declared(Prompt)
    [term] = compile_group_by("d", [bucket("image_width", edges=(256, 512))], kind)
    assert term["edges"] == [256.0, 512.0]
    assert compile_cost("d", length("prompt"), kind) is not None
    assert compile_cost("d", None, kind) is None
    with pytest.raises(TargetError, match="cost: `prompt` must be a number, but it is str"):
        compile_cost("d", "prompt", kind)
    with pytest.raises(TargetError, match="bucket: `prompt` must be a number"):
        compile_group_by("d", [bucket("prompt", edges=(1,))], kind)
    with pytest.raises(TargetError, match="ascending"):
        bucket("x", edges=(2, 1))
    with pytest.raises(TargetError, match="finite"):
        bucket("x", edges=(1, float("inf")))
    with pytest.raises(TargetError, match="3 is not a term"):
        compile_group_by("d", [3], kind)  # pyright: ignore[reportArgumentType]
