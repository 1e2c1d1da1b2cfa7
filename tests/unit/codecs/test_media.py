"""Images and arrays as fields of items: read, checked and refused one by one."""

import dataclasses
import tracemalloc
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar

import jitney
import msgspec
import numpy as np
import pytest
from fake_core import FakeBatch, FakeResults
from files import npy, png, text
from jitney.codecs import Codec, tags
from jitney.codecs.decode.pixels import MOST_MEDIA
from jitney.config.layers import DeploymentOptions
from jitney.signature.annotations import read_signature
from numpy.typing import NDArray

Mask = Annotated[np.ndarray, jitney.Tensor("bool", (2, 2))]
Vector = Annotated[np.ndarray, jitney.Tensor("float32", (None,))]


class Deep(msgspec.Struct, rename="camel"):
    the_mask: Mask | None = None


class Picture(msgspec.Struct):
    prompt: str
    photo: jitney.Image
    mask: Mask
    more: list[jitney.Image] = []
    deep: Deep | None = None
    vectors: dict[str, Vector] = {}


@dataclasses.dataclass(frozen=True)
class Record:
    photo: jitney.Image | None
    vectors: list[Vector]
    pair: tuple[Vector, Mask] | None = None


class Typed(TypedDict):
    pixels: NDArray[np.uint8]


class Named(NamedTuple):
    vector: Vector


T = TypeVar("T")


class Box(msgspec.Struct, Generic[T]):
    content: T
    inner: "Box[T] | None" = None


def codec(item: Any, **options: Any) -> Codec:
    def predict(items: Any) -> list[str]: ...

    predict.__annotations__ = {"items": list[item], "return": list[str]}
    return Codec(read_signature(predict), DeploymentOptions(**options))


def decode(item: Any, *documents: Any, tag: int = tags.JSON, **options: Any) -> Any:
    encode = msgspec.json.encode if tag == tags.JSON else msgspec.msgpack.encode
    batch = FakeBatch([(tag, encode(document)) for document in documents])
    return codec(item, **options).decode(batch.core)


def one(item: Any, document: Any, tag: int = tags.JSON) -> Any:
    decoded = decode(item, document, tag=tag)
    assert decoded.errors == []
    return decoded.columns[0][0]


def refusal(item: Any, document: Any, **options: Any) -> Any:
    [(_, error)] = decode(item, document, **options).errors
    return error


MASK = np.array([[True, False], [False, True]])


@pytest.mark.parametrize("tag", [tags.JSON, tags.MSGPACK])
@pytest.mark.parametrize("form", ["lists", "npy", "elements", "object"])
def test_a_struct_with_images_and_arrays_is_read_from_every_form(tag: int, form: str) -> None:
    held = text if tag == tags.JSON else bytes
    forms = {
        "lists": MASK.tolist(),
        "npy": held(npy(np.asfortranarray(MASK))),
        "elements": held(MASK.tobytes()),
        "object": {"dtype": "bool", "shape": [2, 2], "data": held(MASK.tobytes())},
    }
    document = {"prompt": "tea", "photo": held(png()), "mask": forms[form], "more": [held(png(3, 1))]}
    picture = one(Picture, document | {"deep": {"theMask": forms[form]}, "vectors": {"a": [1, 2.5]}}, tag)
    assert (picture.prompt, picture.photo.width, picture.more[0].width) == ("tea", 2, 3)
    for mask in (picture.mask, picture.deep.the_mask):
        np.testing.assert_array_equal(mask, MASK)
        assert type(mask) is np.ndarray and mask.dtype == bool and mask.flags.writeable and mask.flags.c_contiguous
    assert picture.vectors["a"].dtype == np.float32


def test_dataclasses_typed_dicts_named_tuples_and_generic_structs_hold_arrays() -> None:
    record = one(Record, {"photo": None, "vectors": [[1], [2, 3]], "pair": [[4], MASK.tolist()]})
    assert [vector.tolist() for vector in record.vectors] == [[1.0], [2.0, 3.0]]
    assert record.vectors[0].dtype == np.float32 and record.pair[1].dtype == bool
    assert one(Typed, {"pixels": [[1, 2]]})["pixels"].dtype == np.uint8
    assert one(Named, [[1.0]]).vector.dtype == np.float32
    box = one(Box[Vector], {"content": [1], "inner": {"content": [None]}})
    assert box.content.dtype == np.float32 and np.isnan(box.inner.content[0])
    assert one(dict[str, Vector], {"a": [1]})["a"].dtype == np.float32


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"photo": "%"}, "$.photo", "expected an image in base64"),
        ({"photo": text(b"no image")}, "$.photo", "these 8 bytes are not an image"),
        ({"photo": 3}, "$.photo", "expected an image, got int"),
        ({"photo": text(png(99, 99)[:-40])}, "$.photo", "the image is corrupted"),
        ({"more": [text(png()), text(b"no")]}, "$.more[1]", "these 2 bytes are not an image"),
        ({"mask": [[True], [False]]}, "$.mask", "expected bool of shape (2, 2), got bool of shape (2, 1)"),
        ({"mask": [[True], []]}, "$.mask", "lists of equal length"),
        ({"mask": [[1, 0], [0, 1]]}, "$.mask", "expected bool elements, got int64"),
        ({"mask": text(b"\x01\x02\x00\x00")}, "$.mask", "bool elements of 0 or 1"),
        ({"mask": text(b"\x01")}, "$.mask", "bool of shape (2, 2) has 4 bytes, got 1"),
        ({"mask": text(npy(MASK)[:-1])}, "$.mask", "bool of shape (2, 2) has 4 bytes, got 3"),
        ({"mask": text(npy(np.ones((2, 2))))}, "$.mask", "got float64 of shape (2, 2)"),
        ({"mask": text(b"\x93NUMPY junk")}, "$.mask", "this .npy file cannot be read"),
        ({"mask": {"dtype": "bool", "shape": [2], "data": "AQA="}}, "$.mask", "got bool of shape (2,)"),
        ({"mask": [[None, True], [True, True]]}, "$.mask", "expected bool elements, got null"),
        ({"mask": [[True, {"x": 1}], [True, True]]}, "$.mask", "expected bool elements, got object"),
        ({"mask": {"dtype": "bool", "shape": [2, -1], "data": ""}}, "$.mask", "a list of lengths, got a negative one"),
        ({"mask": {"dtype": "bool", "shape": ["2"], "data": ""}}, "$.mask", "a list of lengths, got str"),
        ({"mask": {"dtype": "bool", "shape": {"x": 1}, "data": ""}}, "$.mask", "a list of lengths, got dict"),
        ({"mask": {"dtype": "bool", "shape": [1] * 65, "data": "AQA="}}, "$.mask", "at most 64 axes, got 65"),
        ({"mask": {"dtype": "bool", "shape": [9] * 200_000, "data": "AQA="}}, "$.mask", "at most 64 axes, got 200000"),
        ({"mask": {"dtype": "bool", "shape": [10**40], "data": ""}}, "$.mask", "got one above 9223372036854775807"),
        ({"mask": {"dtype": "object", "shape": [], "data": ""}}, "$.mask", "not 'object'"),
        ({"mask": {"data": ""}}, "$.mask", "an object of `dtype`, `shape` and `data`, got data"),
        ({"mask": None}, "$.mask", "expected an array as nested lists, base64 or an object"),
        ({"vectors": {"a": ["x"]}}, "$.vectors['a']", "expected float32 elements, got str"),
        ({"vectors": {"a": text(b"abcd")}}, "$.vectors['a']", "bytes alone do not say their shape"),
        ({"vectors": {"a": ["x" * 1_000_000] + [""] * 300_000}}, "$.vectors['a']", "float32 elements, got str"),
        ({"vectors": {"a": [10**400]}}, "$.vectors['a']", "expected float32 elements, int too large"),
        ({"deep": {"theMask": [True]}}, "$.deep.theMask", "got bool of shape (1,)"),
    ],
)
def test_a_bad_image_or_array_in_a_struct_fails_alone_with_its_path(change: Any, field: str, message: str) -> None:
    good = {"prompt": "tea", "photo": text(png()), "mask": MASK.tolist()}
    decoded = decode(Picture, good, good | change, good)
    assert list(decoded.indices) == [0, 2]
    [(place, error)] = decoded.errors
    assert (place, error.field, error.http_status) == (1, field, 422)
    assert error.message.startswith(f"{field}: ") and message in error.message


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1.0


def test_lists_within_lists_are_followed_as_far_as_an_array_has_axes() -> None:
    assert one(dict[str, np.ndarray], {"a": nested(32)})["a"].ndim == 32
    error = refusal(dict[str, np.ndarray], {"a": nested(65)})
    assert (error.field, "expected at most 64 axes, got more" in error.message) == ("$[...]", True)


class Node(msgspec.Struct):
    vector: Vector
    child: "Node | None" = None


@pytest.mark.parametrize("levels", [128, 129, 500, 5000])
def test_a_struct_that_holds_itself_is_read_to_128_levels(levels: int) -> None:
    document = b'{"vector":[1],"child":' * levels + b'{"vector":[1]}' + b"}" * levels
    decoded = codec(Node).decode(FakeBatch([(tags.JSON, document), (tags.JSON, b'{"vector":[1]}')]).core)
    refused = [(place, error.field, error.http_status, error.message) for place, error in decoded.errors]
    message = "$: the item is nested too deeply; send at most 128 levels"
    assert refused == ([] if levels == 128 else [(0, "$", 422, message)])


def test_texts_in_place_of_numbers_take_no_memory() -> None:
    subject = codec(dict[str, Vector])
    batch = FakeBatch([(tags.JSON, msgspec.json.encode({"a": ["x" * 8000] + [""] * 8000}))])
    tracemalloc.start()
    try:
        [(_, error)] = subject.decode(batch.core).errors
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.message == "$['a']: expected float32 elements, got str"
    assert peak < 2_000_000


def test_an_image_of_too_many_pixels_says_so_with_its_status() -> None:
    error = refusal(Picture, {"prompt": "", "photo": text(png(9, 9)), "mask": MASK.tolist()}, max_pixels=80)
    assert (error.field, error.http_status) == ("$.photo", 413)
    assert "9 x 9 = 81 pixels" in error.message


@pytest.mark.parametrize("tag", [tags.JSON, tags.MSGPACK])
def test_the_images_of_an_item_have_one_bound_on_their_pixels(tag: int) -> None:
    held = text if tag == tags.JSON else bytes
    good = {"prompt": "", "photo": held(png(4, 4)), "mask": MASK.tolist(), "more": [held(png(4, 4))] * 4}
    decoded = decode(Picture, good, good | {"more": [held(png(4, 4))] * 20}, good, tag=tag, max_pixels=80)
    assert list(decoded.indices) == [0, 2]
    [(_, error)] = decoded.errors
    assert (error.field, error.http_status) == ("$.more[4]", 413)
    assert error.message == (
        "$.more[4]: the first 6 images of the item have 96 pixels together, allowed are 80 (option `max_pixels`); "
        "send fewer or smaller images"
    )


@pytest.mark.parametrize("tag", [tags.JSON, tags.MSGPACK])
def test_the_images_and_arrays_of_an_item_have_one_bound_on_their_number(tag: int) -> None:
    held = text if tag == tags.JSON else bytes
    most = {"photo": held(png(1, 1)), "vectors": [[1.0]] * (MOST_MEDIA - 1)}
    more = most | {"vectors": [[1.0]] * MOST_MEDIA}
    decoded = decode(Record, most, more, most, tag=tag)
    assert list(decoded.indices) == [0, 2]
    [(_, error)] = decoded.errors
    assert (error.field, error.http_status) == (f"$.vectors[{MOST_MEDIA - 1}]", 413)
    assert error.message.endswith(
        "the item has more than 4096 images and arrays; send one array instead of many, or several items"
    )


def test_an_example_is_read_as_a_client_sends_it() -> None:
    picture = Picture("tea", jitney.Image(png()), MASK, vectors={"a": np.ones(3, np.float32)})
    decoded = codec(Picture).from_python([picture])
    assert decoded.errors == []
    assert decoded.columns[0][0].vectors["a"].dtype == np.float32


def test_a_second_try_gets_arrays_that_no_call_has_written_to() -> None:
    subject = codec(Box[Vector])
    batch = FakeBatch([(tags.JSON, b'{"content": [1, 2]}')])
    decoded = subject.decode(batch.core)
    subject.arguments(decoded)[0][0].content[:] = 9
    assert subject.arguments_again(decoded, range(1), batch.core)[0][0].content.tolist() == [1, 2]


def test_schemas_say_what_the_annotations_say() -> None:
    def predict(items: list[Picture]) -> list[str]: ...

    schema: Any = read_signature(predict).input.schema
    properties = schema["properties"]
    assert properties["photo"] == {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/*"}
    lists, file, parts = properties["mask"]["anyOf"]
    assert (lists["items"]["maxItems"], lists["items"]["items"]) == (2, {"type": "boolean"})
    assert (file["contentEncoding"], file["contentMediaType"]) == ("base64", "application/x-npy")
    assert parts["properties"]["dtype"] == {"const": "bool"}
    assert schema["$defs"]["Deep"]["properties"]["theMask"]["default"] is None
    assert schema["$defs"]["Deep"]["properties"]["theMask"]["anyOf"][0]["x-array"] == "bool of shape (2, 2)"
    assert properties["vectors"]["additionalProperties"]["x-array"] == "float32 of shape (?,)"


def test_a_generic_struct_that_holds_itself_has_a_schema() -> None:
    def predict(items: list[Box[Vector]]) -> list[str]: ...

    assert "$defs" in read_signature(predict).input.schema


class Found(msgspec.Struct):
    photo: jitney.Image
    vector: Vector
    any: np.ndarray | None = None
    number: float = 0.5


def test_answers_of_examples_are_checked_for_their_arrays() -> None:
    def predict(items: list[str]) -> list[Found]: ...

    subject = Codec(read_signature(predict), DeploymentOptions())
    good = Found(jitney.Image(png()), np.ones(3, np.float32), np.ones((2, 2), np.int8), np.float32(1))  # type: ignore[arg-type]
    subject.validate([good], 1)
    with pytest.raises(jitney.InvalidOutput, match=r"\$\.vector: expected float32 of shape \(\?,\), got float64"):
        subject.validate([Found(jitney.Image(png()), np.ones(3))], 1)


def test_an_array_of_texts_in_an_answer_is_of_any_dtype() -> None:
    def predict(items: list[str]) -> list[Found]: ...

    words = np.array(["tea", "bus"])
    Codec(read_signature(predict), DeploymentOptions()).validate(
        [Found(jitney.Image(png()), np.ones(3, np.float32), words)], 1
    )


def test_a_number_of_numpy_stays_a_number_in_msgpack() -> None:
    def predict(items: list[str]) -> list[Found]: ...

    subject = Codec(read_signature(predict), DeploymentOptions())
    batch = FakeBatch([(tags.TEXT, "a")])
    batch.encodings = [tags.MSGPACK]
    results = FakeResults()
    answer = Found(jitney.Image(png()), np.ones(2, np.float32), number=np.float32(1))  # type: ignore[arg-type]
    subject.encode([answer], subject.decode(batch.core), None, batch.core, results.core)
    document = msgspec.msgpack.decode(results.outcomes[0].data)
    assert document["number"] == 1.0
    assert document["vector"] == {"dtype": "float32", "shape": [2], "data": np.ones(2, np.float32).tobytes()}


def mixed(image: list[jitney.Image], prompt: list[str], mask: Mask) -> list[str]: ...


def test_parameters_of_several_types_are_columns() -> None:
    subject = Codec(read_signature(mixed), DeploymentOptions())
    good = {"image": text(png()), "prompt": "tea", "mask": MASK.tolist()}
    documents = [good, good | {"image": "no"}, good | {"prompt": "bus"}, good | {"mask": [True]}]
    batch = FakeBatch([(tags.JSON, msgspec.json.encode(document)) for document in documents])
    decoded = subject.decode(batch.core)
    assert [(place, error.field) for place, error in decoded.errors] == [(1, "$.image"), (3, "$.mask")]
    images, prompts, masks = subject.arguments(decoded)
    assert (images[0].width, prompts, masks.shape) == (2, ["tea", "bus"], (2, 2, 2))
    masks[:] = False
    images.clear()
    _, prompts, masks = subject.arguments_again(decoded, range(1, 2), batch.core)
    assert (prompts, masks.tolist()) == (["bus"], [MASK.tolist()])
    made = subject.from_python([(jitney.Image(png()), "tea", MASK), {"image": png(), "prompt": "x", "mask": MASK}])
    assert (made.errors, len(subject.arguments(made)[1])) == ([], 2)
