"""`predict`'s signature: what can be served, and clear words about what cannot."""

# Deferred on purpose: annotations are strings here, and in the files of many users.
from __future__ import annotations

import dataclasses
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NewType, TypedDict, TypeVar, cast

import jitney
import msgspec
import numpy as np
import PIL.Image
import pydantic
import pytest
from jitney.codecs import Codec
from jitney.config.layers import DeploymentOptions
from jitney.errors import TargetError
from jitney.failures import load_failure_text
from jitney.signature.annotations import read_signature
from jitney.signature.hints import by_pydantic, parts
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

if TYPE_CHECKING:
    from decimal import Decimal


class Prompt(msgspec.Struct):
    prompt: str
    children: list[Prompt] = []


class Node(pydantic.BaseModel):
    text: str = "x"


@dataclasses.dataclass
class Point:
    x: int


class Foreign:
    def __array__(self) -> Any: ...


class Entry(TypedDict):
    x: int


class Scores(NamedTuple):
    label: NDArray[np.int64]
    score: Annotated[np.ndarray, jitney.Tensor("float32", (2,))]


@dataclasses.dataclass
class Mixed:
    label: NDArray[np.int64]
    name: str


T = TypeVar("T")
Word = NewType("Word", str)
Key = NewType("Key", Word)
Words = TypeAliasType("Words", list[Word])
Rows = TypeAliasType("Rows", list[T], type_params=(T,))
Maybe = TypeAliasType("Maybe", T | None, type_params=(T,))
Picture = TypeAliasType("Picture", Annotated[np.ndarray, jitney.Tensor("uint8", (2, 2))])
Photo = NewType("Photo", jitney.Image)
Nodes = NewType("Nodes", Node)
Said = TypeAliasType("Said", str | jitney.InvalidInput)


def kinds(predict: Callable[..., Any], **options: Any) -> tuple[str, str]:
    signature = read_signature(predict, **options)
    return signature.input.kind, signature.output.kind


def test_lists_of_plain_types() -> None:
    def text(x: list[str]) -> list[str]: ...
    def octets(x: Sequence[bytes]) -> list[bytes]: ...
    def images(x: list[jitney.Image]) -> list[jitney.Image]: ...
    def pictures(x: list[Any]) -> list[PIL.Image.Image]: ...
    def unsaid(x: list[dict[str, int]]): ...  # pyright: ignore[reportUnknownParameterType]

    assert [kinds(f) for f in (text, octets, images, pictures, unsaid)] == [  # pyright: ignore[reportUnknownArgumentType]
        ("text", "text"),
        ("bytes", "bytes"),
        ("image", "image"),
        ("object", "image"),
        ("object", "any"),
    ]


def test_structs_of_every_maker_have_a_schema_of_their_own() -> None:
    def prompts(x: list[Prompt]) -> list[Prompt]: ...
    def nodes(x: list[Node]) -> list[Node]: ...
    def points(x: list[Point]) -> list[Point]: ...
    def entries(x: list[Entry]) -> list[Entry]: ...

    for predict in (prompts, nodes, points, entries):
        schema = read_signature(predict).input.schema
        assert schema["type"] == "object"
        msgspec.json.encode(schema)
    assert read_signature(points).input.schema["required"] == ["x"]
    recursive = read_signature(prompts).input.schema
    assert recursive["$defs"]["Prompt"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Prompt"}


def test_an_exception_beside_the_answer_is_no_part_of_its_type() -> None:
    def predict(x: list[str]) -> list[str | jitney.InvalidInput]: ...

    assert read_signature(predict).output.schema == {"type": "string"}


def test_arrays_of_any_spelling() -> None:
    def predict(  # noqa: PLR0917
        a: np.ndarray,
        b: NDArray[np.uint8],
        c: NDArray[Any],
        d: Annotated[np.ndarray, jitney.Tensor("bool", (2, None, -1))],
        e: Annotated[NDArray[np.int64], jitney.Tensor("int64", ())],
        f: NDArray[np.longlong],
        g: Annotated[NDArray[np.uint8], jitney.Tensor(shape=(3,))],
        h: Annotated[np.ndarray, jitney.Tensor(shape=(3,))],
        i: Annotated[NDArray[np.floating[Any]], jitney.Tensor("float64")],
        j: Annotated[NDArray[np.floating[Any]], jitney.Tensor(shape=(3,))],
    ) -> Scores: ...

    signature = read_signature(predict)
    assert [(spec.name, spec.dtype, spec.shape) for spec in signature.input.arrays] == [
        ("a", "float32", None),
        ("b", "uint8", None),
        ("c", "float32", None),
        ("d", "bool", (2, None, None)),
        ("e", "int64", ()),
        ("f", "int64", None),
        ("g", "uint8", (3,)),
        ("h", "float32", (3,)),
        ("i", "float64", None),
        ("j", "float32", (3,)),
    ]
    assert signature.input.schema["properties"]["d"]["items"]["items"]["items"] == {"type": "boolean"}
    assert [(spec.name, spec.dtype) for spec in signature.output.arrays] == [("label", "int64"), ("score", "float32")]
    assert signature.output.kind == "arrays"


def test_results_may_be_arrays_of_other_libraries() -> None:
    def predict(x: list[str]) -> Foreign: ...
    def listed(x: list[str]) -> list[np.ndarray]: ...

    assert kinds(predict) == ("text", "array")
    assert kinds(listed) == ("text", "array")


def test_names_of_types_are_what_they_stand_for() -> None:
    def words(x: Words) -> list[Said]: ...
    def keys(x: list[Key]) -> Rows[Key]: ...
    def pictures(x: Picture) -> Picture: ...
    def photos(x: list[Photo]) -> list[Photo]: ...
    def nodes(x: list[Nodes]) -> list[Nodes]: ...

    assert [kinds(f) for f in (words, keys, pictures, photos, nodes)] == [
        ("text", "text"),
        ("text", "text"),
        ("arrays", "array"),
        ("image", "image"),
        ("object", "object"),
    ]
    assert read_signature(pictures).input.arrays[0].show() == "uint8 of shape (2, 2)"
    assert read_signature(nodes).input.schema["title"] == "Node"
    given = Codec(read_signature(keys), DeploymentOptions()).from_python(["a", 3])
    assert (given.columns, len(given.errors)) == ([["a"]], 1)


def test_a_name_that_stands_for_itself_among_others_is_entered_once() -> None:
    class Name:  # as `type Json = dict[str, Json]` makes one, from Python 3.12 on
        __value__: Any = None

    json: Any = Name()
    json.__value__ = dict[str, json]
    assert list(parts(json)) == [json, dict[str, json], str, json]
    assert not by_pydantic(json)


def test_a_name_within_itself_hides_nothing() -> None:
    assert by_pydantic(Maybe[list[Maybe[Node]]])
    assert not by_pydantic(Maybe[list[Maybe[int]]])


def test_a_tensor_says_what_a_column_holds() -> None:
    class Series:
        def __array__(self) -> Any: ...

    Series.__module__ = "pandas"
    said = Annotated[Series, jitney.Tensor("float32", ())]

    def predict(x: Any) -> Any: ...

    annotations: dict[str, Any] = predict.__annotations__
    for annotation in (said, list[said]):
        annotations |= {"x": list[str], "return": annotation}
        [spec] = read_signature(predict).output.arrays
        assert (spec.dtype, spec.shape) == ("float32", ())
    annotations["return"] = list[Series]
    assert kinds(predict) == ("text", "any")


def test_without_batching_the_parameter_is_the_item() -> None:
    def text(x: str) -> str: ...
    def numbers(x: list[int]) -> dict[str, float]: ...
    def array(x: Annotated[np.ndarray, jitney.Tensor("float32", (3,))]) -> np.ndarray: ...
    def image(x: jitney.Image) -> jitney.Image: ...

    functions = (text, numbers, array, image)
    assert [kinds(f, batched=False) for f in functions] == [
        ("text", "text"),
        ("object", "object"),
        ("arrays", "array"),
        ("image", "image"),
    ]


def test_types_defined_in_a_function_are_found_by_name() -> None:
    class Local(msgspec.Struct):
        x: int

    def predict(x: list[Local]) -> list[Local]: ...

    assert read_signature(predict, names=locals()).input.item is Local
    with pytest.raises(TargetError, match="the annotation's name `Local` is not defined"):
        read_signature(predict)


def test_unresolved_names_are_named() -> None:
    def predict(x: list[Decimal]) -> list[str]: ...

    with pytest.raises(
        TargetError, match=r"`Decimal` is not defined; import it at run time \(not only under TYPE_CHECK"
    ):
        read_signature(predict)


def untyped(x): ...  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]
def nothing() -> list[str]: ...
def many(*x: list[str]) -> list[str]: ...
def keyword(x: list[str], *, y: int) -> list[str]: ...
def unlisted(x: str) -> list[str]: ...
def number(x: int) -> list[str]: ...
def two(x: list[str], y: np.ndarray) -> list[str]: ...
def two_lists(x: list[str], y: str) -> list[str]: ...
def abstract(x: NDArray[np.floating[Any]]) -> list[str]: ...
def complex_array(x: NDArray[np.complex64]) -> list[str]: ...
def two_dtypes(x: Annotated[NDArray[np.uint8], jitney.Tensor("int64")]) -> list[str]: ...
def unknown_type(x: list[np.random.Generator]) -> list[str]: ...
def yields(x: list[str]) -> Any:
    yield x


def iterates(x: list[str]) -> Iterator[str]: ...
def iterates_steps(x: list[str]) -> Iterator[jitney.Step[bytes]]: ...
def iterates_later(x: list[str]) -> AsyncIterator[str]: ...
async def awaits_parts(x: list[str]) -> Iterator[list[str]]: ...
async def yields_later(x: list[str]) -> AsyncIterator[str]:
    yield x[0]


def gives_one(x: list[str]) -> str: ...
def gives_none(x: list[str]) -> None: ...
def gives_pair(x: list[str]) -> tuple[np.ndarray, np.ndarray]: ...
def gives_mixed(x: list[str]) -> Mixed: ...


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (cast("Any", untyped), r"untyped: parameter `x` has no type; annotate it as list\[str\]"),
        (nothing, "takes nothing"),
        (many, r"`\*x: .*` cannot be served"),
        (keyword, "`y` is keyword-only"),
        (unlisted, r"`x` is str; `predict` takes a batch: list\[str\] \(or say batched=False\)"),
        (number, "`x` is int; `predict` takes a batch"),
        (two, r"`y` is float32 of any shape: next to other types say the whole shape \(jitney.Tensor\)"),
        (two_lists, "parameter `y` is str; `predict` takes a batch"),
        (abstract, "arrays of floating cannot be served"),
        (complex_array, "arrays of complex64 cannot be served"),
        (two_dtypes, "`x`: an array of uint8, but its jitney.Tensor says int64"),
        (unknown_type, "items of Generator cannot be decoded"),
        (yields, r"yields: annotate what its parts are, as in `-> Iterator\[list\[jitney.Step\[str\]\]\]`"),
        (iterates, "yields str; it yields a list with what is new of each item"),
        (iterates_steps, r"yields jitney.Step\[bytes\]; it yields a list with what is new of each item"),
        (iterates_later, "AsyncIterator.*: write `async def` with `yield`"),
        (awaits_parts, "Iterator.*: write `async def` with `yield`"),
        (yields_later, "yields_later is an `async def` that yields: it takes one item, so say batched=False"),
        (gives_one, "returns str; it returns an array"),
        (gives_none, "returns None"),
        (gives_pair, "NamedTuple of arrays"),
        (gives_mixed, "Mixed holds arrays, but its field `name` is str"),
    ],
)
def test_what_cannot_be_served_is_refused_in_clear_words(predict: Callable[..., Any], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        read_signature(predict)


Mask = Annotated[np.ndarray, jitney.Tensor("bool", (2,))]


class ImageOrText(NamedTuple):
    image: jitney.Image | str


class ImageInModel(pydantic.BaseModel):
    image: jitney.Image | None = None


class TensorInModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    tensor: Annotated[np.ndarray, jitney.Tensor("uint8", (2,))]


class Elsewhere:
    def __array__(self) -> Any: ...


class Other(msgspec.Struct):
    array: Elsewhere


@dataclasses.dataclass
class Squared:
    x: int
    square: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.square = self.x**2


class ModelInStruct(msgspec.Struct):
    node: Node


UNION = "an image or an array may stand in a union with None only; give each type its own field"


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            ImageInModel,
            "ImageInModel.image: a pydantic model has no images and no arrays as fields; take bytes (jitney",
        ),
        (TensorInModel, "TensorInModel.tensor: a pydantic model has no images and no arrays as fields; take bytes (j"),
        (ImageOrText, f"ImageOrText.image: {UNION}"),
        (list[np.ndarray | list[str]], UNION),
        (Other, "Other.array: arrays come as np.ndarray, not Elsewhere; convert it in predict"),
        (dict[str, Squared], "Squared.square: init=False, and yet clients would have to send it; make it a property"),
        (ModelInStruct, "ModelInStruct.node: only pydantic reads Node; make ModelInStruct a pydantic model too"),
    ],
)
def test_a_part_that_cannot_be_decoded_is_named_with_what_helps(item: Any, message: str) -> None:
    def predict(items: Any) -> list[str]: ...

    predict.__annotations__ = {"items": list[item], "return": list[str]}
    with pytest.raises(TargetError, match=re.escape(f"cannot be decoded: {message}")) as caught:
        read_signature(predict)
    # One line and no traceback of a library below it.
    assert "\n" not in str(caught.value)
    assert load_failure_text(caught.value) == ""


def test_several_parameters_are_the_fields_of_one_object() -> None:
    def predict(image: list[jitney.Image], prompt: list[str], mask: Mask) -> list[str]: ...
    def one(image: jitney.Image, prompt: str) -> str: ...

    taken = read_signature(predict).input
    assert (taken.kind, list(taken.schema["properties"])) == ("object", ["image", "prompt", "mask"])
    assert taken.stacked == {"image": False, "prompt": False, "mask": True}
    assert read_signature(one, batched=False).input.schema["required"] == ["image", "prompt"]


def test_a_list_of_arrays_is_not_stacked() -> None:
    def predict(signals: list[np.ndarray], mask: Mask) -> list[str]: ...

    signals, mask = read_signature(predict).input.arrays
    assert (signals.to_dict()["is_stacked"], mask.is_stacked) == (False, True)


def test_a_tensor_checks_itself() -> None:
    with pytest.raises(ValueError, match="dtype is one of"):
        jitney.Tensor("float31")
    with pytest.raises(ValueError, match="an axis"):
        jitney.Tensor("float32", (-2,))


@pytest.mark.parametrize("returned", [str, jitney.Image])
def test_images_without_pillow_are_refused_at_load(returned: type, monkeypatch: pytest.MonkeyPatch) -> None:
    def takes(images: list[jitney.Image]) -> list[str]:
        return [str(image) for image in images]

    def makes(texts: list[str]) -> list[jitney.Image]:
        return [jitney.Image(text.encode()) for text in texts]

    def find_spec(_: str) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    with pytest.raises(TargetError, match="needs Pillow: pip install pillow"):
        read_signature(takes if returned is str else makes)


def test_a_parameter_with_a_default_is_not_part_of_the_api() -> None:
    def texts(texts: list[str], top_k: int = 5) -> list[str]:
        return texts[:top_k]

    def arrays(image: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        return image

    def warm(image: np.ndarray, temperature: float = 1.0) -> np.ndarray:
        return image * temperature

    def own(image: np.ndarray, *, temperature: float = 1.0) -> np.ndarray:
        return image * temperature

    with pytest.raises(TargetError, match=r"`temperature: .* is not part of the API.*put it into __init__, or behind"):
        read_signature(warm)
    assert [spec.name for spec in read_signature(own).input.arrays] == ["image"]
    with pytest.raises(TargetError, match=r"`top_k: .*` is not part of the API.*put it into a struct or into __init__"):
        read_signature(texts)
    with pytest.raises(TargetError, match=r"`mask: .* is not part of the API"):
        read_signature(arrays)
