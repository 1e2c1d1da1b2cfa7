"""Dataclasses are whole: a field that stands at its default is in `vars(item)` and in what is sent."""

import dataclasses
from typing import Any, ClassVar, Generic, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import pytest
from fake_core import FakeBatch, FakeResults
from jitney.codecs import Codec, Decoded, tags
from jitney.codecs.completing import completed
from jitney.config.layers import DeploymentOptions
from jitney.embedded.values import reader
from jitney.signature.annotations import Output, read_signature

T = TypeVar("T")


@dataclasses.dataclass
class Base:
    z: int = 9


@dataclasses.dataclass
class Child(Base):
    a: int = 1
    b: str = "x"
    c: list[int] = dataclasses.field(default_factory=list[int])
    known: ClassVar[int] = 5


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int = 1
    b: str = "x"


@dataclasses.dataclass(slots=True)
class Slots:
    a: int = 1
    b: str = "x"


@dataclasses.dataclass
class OfSlots(Slots):
    c: int = 3


@dataclasses.dataclass
class After:
    a: int = 1
    b: str = "x"

    def __post_init__(self) -> None:
        self.b += "!"


@dataclasses.dataclass
class Constant:
    a: int = 1
    kind: str = dataclasses.field(default="box", init=False)


@dataclasses.dataclass
class OwnInit:
    a: int = 1
    b: str = "x"

    def __init__(self, a: int) -> None:
        self.a = a


@dataclasses.dataclass
class Generically(Generic[T]):
    value: T
    child: Child | None = None


@dataclasses.dataclass
class Tree:
    children: "list[Tree]"
    name: str = "leaf"


class Held(msgspec.Struct):
    child: Child
    others: dict[str, list[Frozen]] = {}
    pair: tuple[Frozen, int] | None = None


class Typed(TypedDict):
    child: Frozen


class Named(NamedTuple):
    child: Frozen


def codec(item: Any, answer: Any) -> Codec:
    def predict(items: list[Any]) -> Any:
        return items

    predict.__annotations__ = {"items": list[item], "return": answer}
    return Codec(read_signature(predict), DeploymentOptions())


def decode(item: Any, tag: int, data: bytes) -> Any:
    decoded = codec(item, Any).decode(FakeBatch([(tag, data)]).core)
    assert decoded.errors == []
    return decoded.columns[0][0]


def sent(answer: Any, declared: Any, encoding: int = tags.JSON) -> Any:
    batch, results = FakeBatch([(tags.TEXT, "x")]), FakeResults()
    batch.encodings = [encoding]
    codec(str, declared).encode([answer], Decoded([0], [["x"]]), None, batch.core, results.core)
    read = msgspec.json.decode if encoding == tags.JSON else msgspec.msgpack.decode
    return read(results.outcomes[0].data)


Other = NewType("Other", Frozen)

CASES: list[Any] = [
    (Child, {"a": 3}, {"z": 9, "a": 3, "b": "x", "c": []}),
    (Frozen, {}, {"a": 1, "b": "x"}),
    (Slots, {}, {"a": 1, "b": "x"}),
    (OfSlots, {}, {"a": 1, "b": "x", "c": 3}),
    (After, {}, {"a": 1, "b": "x!"}),
    (Constant, {}, {"a": 1, "kind": "box"}),
    (OwnInit, {}, {"a": 1, "b": "x"}),
    (
        Generically[int],
        {"value": 2, "child": {}},
        {"value": 2, "child": {"z": 9, "a": 1, "b": "x", "c": []}},
    ),
    (
        Tree,
        {"children": [{"children": []}]},
        {"children": [{"children": [], "name": "leaf"}], "name": "leaf"},
    ),
    (
        Held,
        {"child": {}, "others": {"k": [{}]}, "pair": [{}, 1]},
        {
            "child": {"z": 9, "a": 1, "b": "x", "c": []},
            "others": {"k": [{"a": 1, "b": "x"}]},
            "pair": [{"a": 1, "b": "x"}, 1],
        },
    ),
    (list[Other], [{}], [{"a": 1, "b": "x"}]),
    (Typed, {"child": {}}, {"child": {"a": 1, "b": "x"}}),
    (Named, [{}], [{"a": 1, "b": "x"}]),
    (list[Frozen | int], [{}, 3], [{"a": 1, "b": "x"}, 3]),
]


@pytest.mark.parametrize(("kind", "given", "whole"), CASES)
@pytest.mark.parametrize("declared", [Any, "same"])
def test_an_item_that_is_sent_back_has_its_defaults(kind: Any, given: Any, whole: Any, declared: Any) -> None:
    for tag, data in ((tags.JSON, msgspec.json.encode(given)), (tags.MSGPACK, msgspec.msgpack.encode(given))):
        item = decode(kind, tag, data)
        for encoding in (tags.JSON, tags.MSGPACK):
            assert sent(item, list[kind] if declared == "same" else list[Any], encoding) == whole


def test_vars_of_an_item_has_all_of_its_fields() -> None:
    assert vars(decode(Child, tags.JSON, b'{"a": 3}')) == {"z": 9, "a": 3, "b": "x", "c": []}
    assert vars(decode(Frozen, tags.JSON, b"{}")) == {"a": 1, "b": "x"}


def test_an_example_has_its_defaults_too() -> None:
    [item] = codec(Child, Any).from_python([{"a": 3}]).columns[0]
    assert vars(item)["b"] == "x"


def test_what_init_did_not_set_is_sent() -> None:
    assert sent(Constant(), list[Constant]) == {"a": 1, "kind": "box"}
    assert sent({"of": [Constant(2)]}, list[dict[str, list[Constant]]]) == {"of": [{"a": 2, "kind": "box"}]}
    assert sent(OwnInit(4), list[OwnInit]) == {"a": 4, "b": "x"}


def test_an_answer_read_by_a_program_is_whole() -> None:
    read = reader({"kind": "object"}, Output("object", item=list[Frozen]))
    [answer] = read((tags.MSGPACK, msgspec.msgpack.encode([{}]), None))
    assert vars(answer) == {"a": 1, "b": "x"}


@pytest.mark.parametrize("kind", [int, dict[str, Any], list[Slots], msgspec.Struct, Any])
def test_types_that_are_whole_cost_nothing(kind: Any) -> None:
    def decode_data(data: Any) -> Any:
        return data

    assert completed(decode_data, kind) is decode_data
