"""Answers are held to their annotation: arrays for each batch, values inside of lists and structs for examples."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypedDict, cast

import jitney
import msgspec
import numpy as np
import pydantic
import pytest
from batches import one
from fake_link import TAG_TEXT
from jitney.codecs import Codec
from jitney.config.layers import DeploymentOptions
from jitney.errors import InvalidOutput
from jitney.signature.annotations import read_signature
from numpy.typing import NDArray


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Record:
    name: str


class Row(TypedDict):
    name: str


class Model(pydantic.BaseModel):
    n: int


class Pair(NamedTuple):
    a: NDArray[np.float32]
    b: NDArray[np.int64]


@dataclasses.dataclass
class Odd:
    name: str
    vector: np.ndarray


def returning(annotation: Any) -> Callable[[list[str]], Any]:
    def predict(texts: list[str]) -> Any:
        return texts

    predict.__annotations__["return"] = annotation
    return predict


def validate(annotation: Any, output: Any) -> None:
    Codec(read_signature(returning(annotation)), DeploymentOptions()).validate(output, len(output))


FLOATS = np.zeros((1, 2), np.float32)


@pytest.mark.parametrize(
    ("annotation", "output"),
    [
        (list[int], [1]),
        (list[float], [1, float("nan"), np.float32(2)]),
        (list[Point], [Point(1), {"x": 1}, jitney.InvalidInput("no")]),
        (list[Point | jitney.InvalidInput], [Point(1), jitney.InvalidInput("no")]),
        (list[Record], [Record("a")]),
        (list[Odd], [Odd("a", np.zeros(2))]),
        (list[Row], [{"name": "a"}]),
        (list[Model], [Model(n=1)]),
        (list[str | None], ["a", None]),
        (list[Any], [object()]),
        (list[str], ["a"]),
        (list[bytes], [b"a"]),
        (list[dict[str, bytes]], [{"a": b"\xff"}]),
        (list[tuple[str, float]], [("a", 1.0)]),
        (NDArray[np.float32], FLOATS),
        (np.ndarray, FLOATS.astype(np.int8)),
        (list[np.ndarray], [FLOATS, FLOATS]),
        (list[list[float]], FLOATS),
        (Annotated[np.ndarray, jitney.Tensor("float32", (None,))], FLOATS),
    ],
)
def test_what_was_declared_passes(annotation: Any, output: Any) -> None:
    validate(annotation, output)


@pytest.mark.parametrize(
    ("annotation", "output", "message"),
    [
        (list[int], ["1"], "return int for each item, but returned a str: .*Expected `int`, got `str`"),
        (list[Point], [{"y": 1.0}], "missing required field `x`"),
        (list[Point], [Point("one")], r"\$\.x: Expected `int`, got `str`"),  # pyright: ignore[reportArgumentType]
        (list[Record], [{"name": 5}], r"\$\.name"),
        (list[Row], [{"nome": 1}], "missing required field `name`"),
        (list[Model], [{"n": "x"}], r"\$\.n"),
        (list[str], [1], "return str for each item, but returned int"),
        (list[str], FLOATS, "not arrays"),
        (NDArray[np.float32], FLOATS.astype(np.float64), "float32 of any shape for each item, but returned float64"),
        (Annotated[np.ndarray, jitney.Tensor("float32", (3,))], FLOATS, r"of shape \(3,\).*of shape \(2,\)"),
        (list[NDArray[np.int8]], [FLOATS], "return int8 of any shape"),
    ],
)
def test_what_was_not_declared_is_named(annotation: Any, output: Any, message: str) -> None:
    with pytest.raises(InvalidOutput, match=message):
        validate(annotation, output)


def test_named_arrays_are_held_to_their_fields() -> None:
    codec = Codec(read_signature(returning(Pair)), DeploymentOptions())
    codec.validate(Pair(FLOATS, np.zeros((1,), np.int64)), 1)
    with pytest.raises(InvalidOutput, match="`b`: predict is annotated to return int64"):
        codec.validate(Pair(FLOATS, cast("Any", np.zeros((1,), np.int32))), 1)


@pytest.mark.parametrize(
    ("annotation", "output"),
    [
        (NDArray[np.float32], FLOATS.astype(np.float64)),
        (Annotated[np.ndarray, jitney.Tensor("float32", (3,))], FLOATS),
        (list[NDArray[np.int8]], [FLOATS[0]]),
        (list[str], FLOATS),
        (Pair, FLOATS),
        (Pair, Pair(FLOATS, cast("Any", np.zeros((1,), np.int32)))),
    ],
)
def test_arrays_are_held_to_their_annotation_in_every_batch(annotation: Any, output: Any) -> None:
    def predict(texts: list[str]) -> Any:
        return output

    predict.__annotations__["return"] = annotation
    [outcome] = one(predict, ["a"], tag=TAG_TEXT)
    assert outcome.reason == "invalid_output"
    assert "annotated to return" in outcome.detail


def test_one_answer_alone_is_validated_too() -> None:
    def predict(text: str) -> int:
        return len(text)

    codec = Codec(read_signature(predict, batched=False), DeploymentOptions(batched=False))
    codec.validate(3, 1)
    with pytest.raises(InvalidOutput, match="Expected `int`"):
        codec.validate("3", 1)
