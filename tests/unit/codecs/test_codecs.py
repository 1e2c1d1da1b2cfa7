"""Items in, answers out: each item its own outcome, whatever the others are."""

import base64
import dataclasses
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import numpy as np
import pydantic
import pytest
from fake_core import Error, FakeBatch, FakeResults, Value
from hypothesis import given, settings
from hypothesis import strategies as st
from jitney import InvalidInput, Tensor
from jitney.codecs import Codec, Decoded, plain, tags
from jitney.config.layers import DeploymentOptions
from jitney.errors import InvalidOutput, MalformedBody
from jitney.signature.annotations import read_signature
from numpy.typing import NDArray


class Prompt(msgspec.Struct):
    prompt: str
    width: int = 512


@dataclasses.dataclass
class Plain:
    prompt: str
    width: int = 512


class Typed(TypedDict):
    prompt: str


class Model(pydantic.BaseModel):
    prompt: str
    width: Annotated[int, pydantic.Field(ge=8)] = 512


class Scores(NamedTuple):
    label: NDArray[np.int64]
    score: NDArray[np.float32]


@dataclasses.dataclass
class Boxes:
    box: NDArray[np.float32]
    count: NDArray[np.int64]


def codec(predict: Callable[..., Any], *, batched: bool = True) -> Codec:
    return Codec(read_signature(predict, batched=batched), DeploymentOptions(batched=batched))


def texts(inputs: list[str]) -> Any: ...
def octets(inputs: list[bytes]) -> Any: ...
def prompts(inputs: list[Prompt]) -> Any: ...
def plains(inputs: list[Plain]) -> Any: ...
def typeds(inputs: list[Typed]) -> Any: ...
def models(inputs: list[Model]) -> Any: ...
def anything(inputs: list[Any]) -> Any: ...
def array(x: np.ndarray) -> Any: ...
def image_mask(
    image: Annotated[np.ndarray, Tensor("uint8", (2, 2))], mask: Annotated[np.ndarray, Tensor("bool", (2, None))]
) -> Any: ...


def encode(output: Any, count: int, subject: Codec | None = None) -> dict[int, Any]:
    batch = FakeBatch([(tags.TEXT, "x")] * count)
    results = FakeResults()
    subject = subject or codec(texts)
    subject.encode(output, Decoded(list(range(count)), [["x"] * count]), None, batch.core, results.core)
    assert sorted(results.outcomes) == list(range(count))
    return results.outcomes


def test_text_comes_as_text_json_and_msgpack_in_one_batch() -> None:
    batch = FakeBatch([(tags.TEXT, "a"), (tags.JSON, b'"b"'), (tags.MSGPACK, msgspec.msgpack.encode("c"))])
    decoded = codec(texts).decode(batch.core)
    assert codec(texts).arguments(decoded) == (["a", "b", "c"],)


def test_predict_may_change_its_list_and_be_called_again() -> None:
    subject = codec(texts)
    decoded = subject.decode(FakeBatch([(tags.TEXT, "a"), (tags.TEXT, "b")]).core)
    subject.arguments(decoded)[0].clear()
    assert subject.arguments(decoded) == (["a", "b"],)


def test_bytes_come_raw_as_base64_and_as_msgpack() -> None:
    data = b"\x00\xff"
    items = [(tags.BYTES, data), (tags.JSON, b'"AP8="'), (tags.MSGPACK, msgspec.msgpack.encode(data))]
    assert codec(octets).decode(FakeBatch(items).core).columns == [[data] * 3]


@pytest.mark.parametrize("predict", [prompts, plains, models, typeds])
def test_a_bad_struct_fails_alone_and_names_its_field(predict: Callable[..., Any]) -> None:
    good = b'{"prompt": "a"}'
    items = [(tags.JSON, good), (tags.JSON, b'{"prompt": 7}'), (tags.JSON, b"{}"), (tags.JSON, b"{"), (tags.JSON, good)]
    decoded = codec(predict).decode(FakeBatch(items).core)
    assert decoded.indices == [0, 4]
    assert len(decoded.columns[0]) == 2
    fields = [(index, error.field, error.status) for index, error in decoded.errors]
    assert fields == [(1, "$.prompt", 422), (2, "$.prompt", 422), (3, None, 400)]
    assert decoded.errors[0][1].message.startswith("$.prompt: ")
    assert isinstance(decoded.errors[2][1], MalformedBody)


def test_messages_name_expected_and_got() -> None:
    decoded = codec(prompts).decode(FakeBatch([(tags.JSON, b'{"prompt":"a","width":"x"}')]).core)
    [(_, error)] = decoded.errors
    assert (error.message, error.field) == ("$.width: Expected `int`, got `str`", "$.width")


@pytest.mark.parametrize(("predict", "body"), [(texts, rb'"\ud800"'), (prompts, rb'{"prompt": "a\udc00"}')])
def test_half_a_surrogate_pair_is_named(predict: Callable[..., Any], body: bytes) -> None:
    [(_, error)] = codec(predict).decode(FakeBatch([(tags.JSON, body)]).core).errors
    assert isinstance(error, MalformedBody)
    assert "half of a surrogate pair" in error.message
    [(_, error)] = codec(predict).decode(FakeBatch([(tags.JSON, body[:-2])]).core).errors
    assert "half" not in error.message


def test_structs_come_as_msgpack_too() -> None:
    item = (tags.MSGPACK, msgspec.msgpack.encode({"prompt": "a", "width": 9}))
    assert codec(prompts).decode(FakeBatch([item]).core).columns == [[Prompt("a", 9)]]
    assert codec(models).decode(FakeBatch([item]).core).columns == [[Model(prompt="a", width=9)]]


def test_bytes_for_a_struct_are_refused() -> None:
    decoded = codec(prompts).decode(FakeBatch([(tags.BYTES, b"x"), (tags.JSON, b'{"prompt":"a"}')]).core)
    assert decoded.indices == [1]
    assert decoded.errors[0][1].status == 415


def test_a_validator_that_raises_anything_is_the_items_own_failure() -> None:
    class Odd(pydantic.BaseModel):
        x: int

        @pydantic.field_validator("x")
        @classmethod
        def check(cls, value: int) -> int:
            raise KeyError(value)

    def odd(inputs: list[Odd]) -> Any: ...

    decoded = codec(odd).decode(FakeBatch([(tags.JSON, b'{"x": 1}')]).core)
    assert "KeyError" in decoded.errors[0][1].message


def test_constraints_of_annotated_items_hold_for_every_tag() -> None:
    def short(inputs: list[Annotated[str, msgspec.Meta(max_length=2)]]) -> Any: ...
    def choice(inputs: list[Literal["a", "b"]]) -> Any: ...

    items = [(tags.TEXT, "abc"), (tags.JSON, b'"abc"'), (tags.TEXT, "ab")]
    assert codec(short).decode(FakeBatch(items).core).indices == [2]
    assert codec(choice).decode(FakeBatch([(tags.TEXT, "a"), (tags.TEXT, "c")]).core).indices == [0]


def test_stacked_arrays_are_views_of_what_was_received() -> None:
    subject = codec(array)
    arrays = [np.full((2, 3), n, np.float32) for n in range(4)]
    decoded = subject.decode(FakeBatch(arrays=[arrays]).core)
    [stacked] = subject.arguments(decoded)
    assert stacked.base is not None
    assert stacked.flags.writeable
    np.testing.assert_array_equal(stacked, np.stack(arrays))
    [neighbours] = subject.arguments(decoded, [1, 2])
    assert np.shares_memory(neighbours, stacked)
    [others] = subject.arguments(decoded, [3, 0])
    assert others[:, 0, 0].tolist() == [3, 0]


def test_an_array_of_another_dtype_or_shape_fails_alone() -> None:
    subject = codec(image_mask)
    images = [np.zeros((2, 2), np.uint8), np.zeros((2, 3), np.uint8), np.zeros((2, 2), np.uint8)]
    masks = [np.zeros((2, 5), bool), np.zeros((2, 5), bool), np.zeros((2, 5), np.int8)]
    decoded = subject.decode(FakeBatch(arrays=[images, masks]).core)
    assert decoded.indices == [0]
    assert [error.message for _, error in decoded.errors] == [
        "`image`: expected uint8 of shape (2, 2), got uint8 of shape (2, 3)",
        "`mask`: expected bool of shape (2, ?), got int8 of shape (2, 5)",
    ]
    image, mask = subject.arguments(decoded)
    assert (image.shape, mask.shape) == ((1, 2, 2), (1, 2, 5))


def test_a_whole_batch_of_a_wrong_dtype_is_refused_item_by_item() -> None:
    decoded = codec(array).decode(FakeBatch(arrays=[[np.zeros(3), np.zeros(3)]]).core)
    assert [index for index, _ in decoded.errors] == [0, 1]
    assert decoded.errors[0][1].field == "$.x"


def test_empty_arrays_and_scalars_come_through() -> None:
    subject = codec(array)

    def shape(item: Any) -> tuple[int, ...]:
        return subject.arguments(subject.decode(FakeBatch(arrays=[[item] * 2]).core))[0].shape

    assert shape(np.zeros((0, 3), np.float32)) == (2, 0, 3)
    assert shape(np.float32(1)) == (2,)


def test_without_batching_predict_takes_one_item() -> None:
    def one(text: str) -> str: ...
    def pixels(x: Annotated[np.ndarray, Tensor("float32", ())]) -> Any: ...

    subject = codec(one, batched=False)
    decoded = subject.decode(FakeBatch([(tags.TEXT, "a"), (tags.TEXT, "b")]).core)
    assert subject.arguments(decoded, [1]) == ("b",)
    arrays = codec(pixels, batched=False)
    decoded = arrays.decode(FakeBatch(arrays=[[np.float32(1), np.float32(2)]]).core)
    [value] = arrays.arguments(decoded, [1])
    assert type(value) is np.ndarray
    assert np.shape(value) == ()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("a", Value(tags.TEXT, b"a")),
        ([1, 2], Value(tags.JSON, b"[1,2]")),
        ({"a": np.float32(0.5)}, Value(tags.JSON, b'{"a":0.5}')),
        (InvalidInput("no", field="$.x"), Error("invalid_input", "no", "$.x", 422)),
    ],
)
def test_without_batching_predict_returns_one_answer(answer: Any, outcome: object) -> None:
    def one(text: str) -> Any: ...

    assert encode(answer, 1, codec(one, batched=False)) == {0: outcome}


def test_without_batching_arrays_have_no_batch_axis() -> None:
    def one(text: str) -> Any: ...

    subject = codec(one, batched=False)
    assert encode(np.zeros((2, 3)), 1, subject)[0].shape == (2, 3)
    assert encode(np.float32(1), 1, subject)[0].shape == ()
    named = encode(Scores(np.zeros(2, np.int64), np.zeros((), np.float32)), 1, subject)[0]
    assert (named["label"].shape, named["score"].shape) == ((2,), ())
    with pytest.raises(InvalidOutput, match="None"):
        subject.check(None, 1)


@pytest.mark.parametrize("answer", [str | None, Model | None, np.ndarray | None, Annotated[int | None, "x"]])
def test_without_batching_none_is_an_answer_where_the_annotation_says_so(answer: Any) -> None:
    def one(text: str) -> Any: ...

    one.__annotations__["return"] = answer
    subject = codec(one, batched=False)
    assert encode(None, 1, subject) == {0: Value(tags.JSON, b"null")}
    subject.validate(None, 1)


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (["a"], "1 answer for a batch of 2: too few; expected 2"),
        (["a"] * 3, "3 answers for a batch of 2: too many"),
        (np.zeros((3, 2)), r"3 answers for a batch of 2: too many.*shape \(3, 2\)"),
        (np.zeros(()), r"without axes \(a scalar\)"),
        (np.float32(1), r"without axes \(a scalar\)"),
        (None, r"returned None \(is a `return` missing"),
        (generator(), "a generator"),
        (7, "one int, '7'"),
        ("ab", "one str, 'ab'"),
        (("a", "b"), r"a tuple \(use a list"),
        ({"a": 1, "b": 2}, "a dict"),
        ({1, 2}, "a set"),
        (Scores(np.zeros(2, np.int64), np.zeros(1, np.float32)), "1 answer for a batch of 2: too few.*`score`"),
        (np.zeros(2, complex), "an array of complex128"),
        (np.zeros(2, ">f4"), "foreign byte order"),
        (np.zeros(2, [("a", "f4")]), "arrays can hold"),
    ],
)
def test_a_wrong_output_names_expected_and_got(output: Any, message: str) -> None:
    with pytest.raises(InvalidOutput, match=message):
        codec(texts).check(output, 2)


def test_arrays_leave_as_rows_without_a_copy_where_possible() -> None:
    seen: list[Any] = []

    class Watching(FakeResults):
        def rows(self, indices: Any, name: str, dtype: str, row_shape: Any, data: Any) -> None:
            seen.append(data)
            super().rows(indices, name, dtype, row_shape, data)

    output = np.arange(6, dtype=np.float32).reshape(2, 3)
    batch, results = FakeBatch([(tags.TEXT, "x")] * 2), Watching()
    decoded = Decoded([0, 1], [["x"] * 2])
    codec(texts).encode(output, decoded, None, batch.core, results.core)
    assert np.shares_memory(seen[0], output)
    np.testing.assert_array_equal(results.outcomes[1], output[1])
    outcomes = encode(output.T.copy().T[:, ::2], 2)
    np.testing.assert_array_equal(outcomes[0], output[0, ::2])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64"])
def test_all_plain_dtypes_leave(dtype: str) -> None:
    assert encode(np.ones((2, 2), dtype), 2)[0].dtype.name == dtype


def test_named_arrays_leave_by_name() -> None:
    outcomes = encode(Boxes(np.zeros((2, 4), np.float32), np.arange(2)), 2)
    assert outcomes[1]["box"].shape == (4,)
    assert outcomes[1]["count"] == 1


class FakeCudaTensor:
    """Behaves as a torch tensor on a device does: only the copy on the host is readable."""

    def __init__(self, values: Any, dtype: str, *, on_host: bool = False) -> None:
        self._values, self.dtype, self._on_host = values, dtype, on_host
        self.shape = values.shape

    def __array__(self) -> Any:
        raise TypeError("on a device")

    def detach(self) -> "FakeCudaTensor":
        return self

    def cpu(self) -> "FakeCudaTensor":
        return FakeCudaTensor(self._values, self.dtype, on_host=True)

    def float(self) -> "FakeCudaTensor":
        return FakeCudaTensor(self._values, "torch.float32", on_host=self._on_host)

    def numpy(self) -> Any:
        assert self._on_host
        assert self.dtype != "torch.bfloat16"
        return self._values


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16"])
def test_tensors_on_a_device_are_copied_to_the_host(dtype: str) -> None:
    values = np.ones((2, 3), np.float32)
    assert encode(FakeCudaTensor(values, dtype), 2)[1].tolist() == [1, 1, 1]
    assert encode([FakeCudaTensor(values, dtype)] * 2, 2)[1].shape == (2, 3)


def test_a_list_of_arrays_may_have_many_shapes() -> None:
    outcomes = encode([np.zeros(2), np.ones(3), np.zeros(2)], 3)
    assert [outcomes[index].shape for index in range(3)] == [(2,), (3,), (2,)]
    assert encode([np.float32(1), np.float32(2)], 2)[1] == 2


def test_each_struct_leaves_in_the_encoding_that_its_item_wants() -> None:
    batch, results = FakeBatch([(tags.TEXT, "x")] * 3), FakeResults()
    batch.encodings = [tags.JSON, tags.MSGPACK, tags.JSON]
    answers = [Prompt("a"), Prompt("b"), Prompt("c")]
    codec(texts).encode(answers, Decoded([0, 1, 2], [["x"] * 3]), None, batch.core, results.core)
    assert results.outcomes[1] == Value(tags.MSGPACK, msgspec.msgpack.encode(answers[1]))
    assert results.outcomes[2].data == b'{"prompt":"c","width":512}'


def test_answers_go_to_the_places_of_their_items() -> None:
    subject = codec(prompts)
    good = b'{"prompt":"a"}'
    batch, results = (
        FakeBatch([(tags.JSON, good), (tags.JSON, b"{}"), (tags.JSON, good), (tags.JSON, good)]),
        FakeResults(),
    )
    decoded = subject.decode(batch.core)
    subject.encode(["third"], decoded, [2], batch.core, results.core)
    assert list(results.outcomes) == [3]


def test_an_exception_at_an_index_fails_that_item_alone() -> None:
    outcomes = encode(["a", InvalidInput("too short", status=400, field="$.x"), ValueError("odd"), "d"], 4)
    assert outcomes[0] == Value(tags.TEXT, b"a")
    assert outcomes[1] == Error("invalid_input", "too short", "$.x", 400)
    assert outcomes[2] == Error("model_failed", "ValueError: odd", None, None)


def test_an_answer_that_cannot_be_encoded_fails_alone() -> None:
    outcomes = encode(["a", "\ud800"], 2)
    assert outcomes[1].reason == "invalid_output"
    outcomes = encode([{"a": 1}, {"a": object()}], 2)
    assert outcomes[0].data == b'{"a":1}'
    assert "cannot be encoded" in outcomes[1].detail
    assert encode([np.zeros(2), np.zeros(1, complex)], 2)[1].reason == "invalid_output"


def test_foreign_values_inside_of_answers_are_encoded() -> None:
    answers = [
        {"score": np.float32(0.5), "ids": np.arange(3), "model": Model(prompt="p"), "raw": b"\x00\xff"},
        Boxes(np.zeros(1, np.float32), np.arange(1)),
        Model(prompt="q"),
        None,
    ]
    outcomes = encode(answers, 4)
    assert outcomes[0].data == b'{"score":0.5,"ids":[0,1,2],"model":{"prompt":"p","width":512},"raw":"AP8="}'
    assert outcomes[1].data == b'{"box":[0.0],"count":[0]}'
    assert [outcomes[2].data, outcomes[3].data] == [b'{"prompt":"q","width":512}', b"null"]


def test_an_answer_against_the_annotation_is_refused() -> None:
    def declared(inputs: list[str]) -> list[str]: ...

    outcomes = encode(["a", 7], 2, codec(declared))
    assert outcomes[0] == Value(tags.TEXT, b"a")
    assert outcomes[1].detail == "predict is annotated to return str for each item, but returned int for this one"


def test_bytes_leave_raw() -> None:
    assert encode([b"a", bytearray(b"b")], 2)[1] == Value(tags.BYTES, b"b", "application/octet-stream")
    assert encode([b"a", b"b"], 2)[1] == Value(tags.BYTES, b"b", "application/octet-stream")


@pytest.mark.parametrize(
    ("predict", "good", "bad"),
    [
        (texts, "a", 7),
        (octets, b"\x00", "not base64!"),
        (prompts, Prompt("a"), {"width": 1}),
        (prompts, {"prompt": "a"}, {"prompt": 1}),
        (models, Model(prompt="a"), {"prompt": "a", "width": 1}),
        (plains, Plain("a"), 3),
        (array, np.zeros(2, np.float32), np.zeros(2)),
        (array, [1, 2], ["a"]),
        (image_mask, (np.zeros((2, 2), np.uint8), np.zeros((2, 1), bool)), {"image": 1}),
        (image_mask, {"image": [[1, 2], [3, 4]], "mask": [[True], [False]]}, [[1, 2]]),
    ],
)
def test_examples_meet_the_checks_of_the_wire(predict: Callable[..., Any], good: Any, bad: Any) -> None:
    subject = codec(predict)
    decoded = subject.from_python([good, bad, good])
    assert decoded.indices == [0, 2]
    assert [index for index, _ in decoded.errors] == [1]
    assert len(subject.arguments(decoded)[0]) == 2


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(json_values, min_size=1, max_size=6))
def test_any_json_comes_in_and_leaves_unchanged(values: list[Any]) -> None:
    subject = codec(anything)
    batch, results = FakeBatch([(tags.JSON, msgspec.json.encode(value)) for value in values]), FakeResults()
    decoded = subject.decode(batch.core)
    [arguments] = subject.arguments(decoded)
    subject.encode(arguments, decoded, None, batch.core, results.core)
    for index, value in enumerate(values):
        outcome = results.outcomes[index]
        got = outcome.data.decode() if outcome.tag == tags.TEXT else msgspec.json.decode(outcome.data)
        assert got == value


@settings(deadline=None)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=8), st.sampled_from([tags.JSON, tags.MSGPACK]))
def test_garbage_never_escapes_and_never_spoils_its_neighbours(items: list[bytes], tag: int) -> None:
    good = msgspec.json.encode({"prompt": "a"}) if tag == tags.JSON else msgspec.msgpack.encode({"prompt": "a"})
    mixed = [good, *items, good]
    for predict in (prompts, models):
        decoded = codec(predict).decode(FakeBatch([(tag, item) for item in mixed]).core)
        assert decoded.indices[0] == 0
        assert decoded.indices[-1] == len(mixed) - 1
        assert sorted([*decoded.indices, *(index for index, _ in decoded.errors)]) == list(range(len(mixed)))


def test_plain_values_are_json() -> None:
    assert plain({"a": b"\x00", "b": np.arange(2), "c": Prompt("x")}) == {
        "a": base64.b64encode(b"\x00").decode(),
        "b": [0, 1],
        "c": {"prompt": "x", "width": 512},
    }


def test_tags_are_those_of_the_frame_format() -> None:
    core = pytest.importorskip("jitney._core", reason="jitney._core is not built")
    for name in ("JSON", "MSGPACK", "TEXT", "BYTES", "TENSOR"):
        assert getattr(core, f"TAG_{name}") == getattr(tags, name)


@pytest.mark.parametrize(
    ("predict", "body", "hint"),
    [
        (texts, b"hello", "(for plain text send content-type: text/plain)"),
        (texts, b"text=hello", "(for plain text send content-type: text/plain)"),
        (prompts, b"prompt=hello&width=3", "(this looks like a form, key=value: send JSON or multipart/form-data)"),
        (models, b"prompt=hello", "(this looks like a form, key=value: send JSON or multipart/form-data)"),
        (prompts, b"{oops", None),
        (texts, b'"\\ud800"', None),
    ],
)
def test_a_body_that_is_no_json_is_told_what_it_may_have_been(predict: Any, body: bytes, hint: str | None) -> None:
    decoded = codec(predict).decode(FakeBatch([(tags.JSON, body)]).core)
    [(_, error)] = decoded.errors
    assert (error.reason, error.status) == ("malformed_body", 400)
    assert error.message.endswith(hint) if hint else "send" not in error.message
