"""Values of common libraries in answers are sent as what they are: texts, numbers, times, lists and dicts."""

import collections
import dataclasses
import datetime
import pathlib
from collections.abc import Callable
from typing import Annotated, Any, Literal

import jitney
import msgspec
import numpy as np
import pydantic
import pytest
from fake_core import FakeBatch, FakeResults
from jitney.codecs import Codec, Decoded, tags
from jitney.config.layers import DeploymentOptions
from jitney.errors import InvalidOutput, TargetError
from jitney.signature.annotations import read_signature


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "not this"


class Whole(int):
    pass


class Real(float):
    pass


class Octets(bytes):
    pass


class Row(collections.OrderedDict[str, Any]):
    pass


class Moment(datetime.datetime):
    """As pandas' Timestamp is one."""


class Day(datetime.date):
    pass


class Span(datetime.timedelta):
    pass


NaT = type("NaTType", (datetime.datetime,), {"__module__": "pandas.api.typing"})
NA = type("NAType", (), {"__module__": "pandas._libs.missing"})


class DataFrame:
    """As pandas' is seen from here: an array, if one asks it for one."""

    shape = (2, 2)

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.ones((2, 2))


class Series:
    """Of texts, as pandas has them: an array of objects."""

    shape = (2,)

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.array(["a", "b"], object)


Series.__module__ = DataFrame.__module__ = "pandas"


@dataclasses.dataclass
class Label:
    name: Literal["a", "b"]


class Struct(msgspec.Struct):
    name: Any


class Model(pydantic.BaseModel):
    value: Any


def codec(annotation: Any, *, batched: bool = True) -> Codec:
    def predict(texts: list[str]) -> Any: ...
    def predict_one(text: str) -> Any: ...

    chosen: Callable[..., Any] = predict if batched else predict_one
    chosen.__annotations__["return"] = annotation
    return Codec(read_signature(chosen, batched=batched), DeploymentOptions(batched=batched))


def outcomes(output: Any, annotation: Any, *, encoding: int = tags.JSON, batched: bool = True) -> list[Any]:
    count = 2 if batched else 1
    batch, results = FakeBatch([(tags.TEXT, "x")] * count), FakeResults()
    batch.encodings = [encoding] * count
    codec(annotation, batched=batched).encode(
        output, Decoded(range(count), [["x"] * count]), None, batch.core, results.core
    )
    return [results.outcomes[place] for place in range(count)]


def value(outcome: Any) -> Any:
    if isinstance(outcome, np.ndarray):
        return outcome.tolist()
    if outcome.tag in (tags.TEXT, tags.BYTES):
        return outcome.data.decode() if outcome.tag == tags.TEXT else outcome.data
    return (msgspec.json.decode if outcome.tag == tags.JSON else msgspec.msgpack.decode)(outcome.data)


@pytest.mark.parametrize("annotation", [list[str], list[Any], list[Literal["a", "b"]], list[str | None]])
@pytest.mark.parametrize(
    "output", [np.array(["a", "b"]), [np.str_("a"), np.str_("b")], np.array(["a", "b"], object), Series()]
)
def test_texts_of_numpy_and_pandas_are_texts(annotation: Any, output: Any) -> None:
    codec(annotation).validate(output, 2)
    found = outcomes(output, annotation)
    assert [value(outcome) for outcome in found] == ["a", "b"]
    assert {outcome.tag for outcome in found} == {tags.TEXT}


def test_texts_of_numpy_are_texts_in_structs_and_dicts() -> None:
    answers = [{np.str_("k"): np.str_("v")}, {"k": np.array(["a", "b"])}]
    assert list(map(value, outcomes(answers, list[dict[str, Any]]))) == [{"k": "v"}, {"k": ["a", "b"]}]
    labels: Any = [Label(np.str_("a")), Label(np.str_("b"))]  # pyright: ignore[reportArgumentType]
    codec(list[Label]).validate(labels, 2)
    assert list(map(value, outcomes(labels, list[Label]))) == [{"name": "a"}, {"name": "b"}]
    structs = [Struct(np.str_("a")), Struct(np.bytes_(b"b"))]
    assert list(map(value, outcomes(structs, list[Struct]))) == [{"name": "a"}, {"name": "Yg=="}]


def test_bytes_of_numpy_are_bytes() -> None:
    assert list(map(value, outcomes(np.array([b"a", b"b"]), list[bytes]))) == [b"a", b"b"]
    assert list(map(value, outcomes([np.bytes_(b"a"), b"b"], list[bytes]))) == [b"a", b"b"]


def test_one_text_of_numpy_alone_is_a_text() -> None:
    assert value(outcomes(np.str_("a"), str, batched=False)[0]) == "a"
    assert value(outcomes(np.array(["a", "b"]), list[str], batched=False)[0]) == ["a", "b"]


def test_texts_are_no_arrays_where_arrays_are_declared() -> None:
    for texts in (np.array(["a", "b"]), np.array(["a", "b"], object)):
        with pytest.raises(InvalidOutput, match=r"arrays can hold .*; for texts annotate it as `-> list\[str\]`"):
            outcomes(texts, np.ndarray)


@pytest.mark.parametrize("annotation", [Series, Annotated[Series, "labels"]])
def test_a_column_may_hold_anything_whatever_its_annotation(annotation: Any) -> None:
    assert list(map(value, outcomes(Series(), annotation))) == ["a", "b"]
    assert list(map(value, outcomes(np.ones((2, 1)), annotation))) == [[1], [1]]
    assert list(map(value, outcomes([Series(), Series()], list[annotation]))) == [["a", "b"]] * 2


@pytest.mark.parametrize("annotation", [DataFrame, list[DataFrame]])
def test_a_data_frame_as_an_annotation_is_refused_at_load(annotation: Any) -> None:
    with pytest.raises(TargetError, match=r"predict returns a DataFrame; return df\.to_dict\('records'\)"):
        codec(annotation)


@pytest.mark.parametrize("encoding", [tags.JSON, tags.MSGPACK])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Text("x"), "x"),
        (Whole(3), 3),
        (Real(1.5), 1.5),
        (Row(a=1), {"a": 1}),
        (Day(2020, 1, 2), "2020-01-02"),
        (Span(days=1, seconds=2), "P1DT2S"),
        (NaT(2020, 1, 1), None),
        (NA(), None),
        (collections.deque([1]), [1]),
        (collections.UserDict({"a": 1}), {"a": 1}),
        (collections.UserList([1]), [1]),
        (collections.UserString("x"), "x"),
        (pathlib.Path("/a/b"), "/a/b"),
        (range(3), [0, 1, 2]),
        ({"a": 1}.values(), [1]),
        (np.array(["2020-01-02", "NaT"], "datetime64[ns]"), ["2020-01-02T00:00:00", None]),
    ],
)
def test_what_is_like_a_known_type_is_sent_as_it(answer: Any, expected: Any, encoding: int) -> None:
    found = outcomes([{"v": answer}, [answer]], list[Any], encoding=encoding)
    assert list(map(value, found)) == [{"v": expected}, [expected]]


def test_an_instant_of_a_subclass_keeps_its_time_and_its_zone() -> None:
    moment = Moment(2020, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    found = outcomes([{"v": moment}, {"v": Moment(2020, 1, 2)}], list[Any])
    assert list(map(value, found)) == [{"v": "2020-01-02T03:04:05.000006Z"}, {"v": "2020-01-02T00:00:00"}]


def test_bytes_of_a_subclass_are_base64() -> None:
    assert value(outcomes([{"v": Octets(b"a")}, 1], list[Any])[0]) == {"v": "YQ=="}


@pytest.mark.parametrize("encoding", [tags.JSON, tags.MSGPACK])
def test_pydantic_answers_may_hold_values_of_numpy(encoding: int) -> None:
    answers = [Model(value=np.float32(0.5)), Model(value={"a": [np.arange(2), np.str_("x")]})]
    found = outcomes(answers, list[Model], encoding=encoding)
    assert list(map(value, found)) == [{"value": 0.5}, {"value": {"a": [[0, 1], "x"]}}]


@pytest.mark.parametrize("annotation", [list[dict[str, float]], list[Any], Any, list[list[float]], np.ndarray])
def test_a_data_frame_is_refused_with_what_to_return(annotation: Any) -> None:
    with pytest.raises(InvalidOutput, match=r"df\.to_dict\('records'\)"):
        outcomes(DataFrame(), annotation)


def test_a_data_frame_inside_of_an_answer_fails_alone() -> None:
    good, bad = outcomes([{"v": 1}, {"v": DataFrame()}], list[dict[str, Any]])
    assert value(good) == {"v": 1}
    assert bad.reason == "invalid_output"
    assert "df.to_dict('records')" in bad.detail


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (list[dict[str, float]], "Expected `object`, got `array`"),
        (list[list[str]], "Expected `str`, got `float`"),
        (list[Label], "Expected `object`, got `array`"),
    ],
)
def test_an_array_is_validated_like_the_lists_that_it_stands_for(annotation: Any, message: str) -> None:
    with pytest.raises(InvalidOutput, match=message):
        codec(annotation).validate(np.ones((2, 2)), 2)
    codec(list[tuple[float, float]]).validate(np.ones((2, 2)), 2)
    codec(list[jitney.InvalidInput | list[float]]).validate(np.ones((2, 2), np.float32), 2)
