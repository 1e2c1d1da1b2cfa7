"""Bytes in types that pydantic validates: base64 in JSON, bytes in every other format; the classes are not changed."""

import base64
import datetime
import enum
import json
import math
import pathlib
import threading
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pydantic.alias_generators
import pydantic.dataclasses
import pytest
from fake_core import FakeBatch, FakeResults, Value
from jitney.codecs import Codec, Decoded, plain, tags
from jitney.codecs.plain import sent
from jitney.config.layers import DeploymentOptions
from jitney.embedded.values import reader, writer
from jitney.errors import InvalidInput, TargetError
from jitney.signature.annotations import read_signature
from jitney.signature.pydantic.adapter import Adapter

RAW = b"\xfb\xff\xfe"  # `+//+` in base64, and no text
TEXT = base64.b64encode(RAW).decode()


@pydantic.dataclasses.dataclass
class Stamp:
    picture: bytes


class Page(pydantic.BaseModel):
    scan: bytes
    stamp: Stamp | None = None


class Letter(pydantic.BaseModel):
    default: Annotated[bytes, pydantic.Field(max_length=3)]
    encoded: pydantic.Base64Bytes = b""
    pages: list[Page] = []
    named: dict[str, bytes] = {}
    sent: datetime.datetime = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
    answer: "Letter | None" = None


LETTER = Letter.model_construct(
    default=RAW,
    encoded=RAW,
    pages=[Page(scan=RAW, stamp=Stamp(RAW))],
    named={"a": RAW},
    sent=datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC),
    answer=Letter(default=RAW),
)


def written(raw: Any) -> dict[str, Any]:
    """The letter on the wire."""
    rest = {"sent": "2026-11-22T00:00:00Z"}
    reply: dict[str, Any] = {"default": raw, "encoded": raw[:0], "pages": [], "named": {}, **rest, "answer": None}
    page = {"scan": raw, "stamp": {"picture": raw}}
    return {"default": raw, "encoded": raw, "pages": [page], "named": {"a": raw}, **rest, "answer": reply}


def letters(inputs: list[Letter]) -> list[Letter]: ...
def stamps(inputs: list[Stamp]) -> list[Stamp]: ...
def codec(predict: Callable[..., Any]) -> Codec:
    return Codec(read_signature(predict), DeploymentOptions())


def encode(answer: Any, tag: int) -> Value:
    batch, results = FakeBatch([(tags.JSON, "x")]), FakeResults()
    batch.encodings = [tag]
    codec(letters).encode([answer], Decoded([0], [["x"]]), None, batch.core, results.core)
    outcome = results.outcomes[0]
    assert isinstance(outcome, Value), outcome
    return outcome


def test_bytes_come_in_alike_as_json_and_as_msgpack() -> None:
    items = [(tags.JSON, msgspec.json.encode(written(TEXT))), (tags.MSGPACK, msgspec.msgpack.encode(written(RAW)))]
    decoded = codec(letters).decode(FakeBatch(items).core)
    assert decoded.errors == []
    assert decoded.columns == [[LETTER, LETTER]]
    assert type(decoded.columns[0][0].pages[0].stamp) is Stamp


@pytest.mark.parametrize("example", [LETTER, written(RAW), written(TEXT)])
def test_bytes_in_examples_are_checked_as_on_the_wire(example: Any) -> None:
    assert codec(letters).from_python([example]).columns == [[LETTER]]


def test_bytes_leave_as_base64_and_as_msgpack_s_own() -> None:
    assert json.loads(encode(LETTER, tags.JSON).data) == written(TEXT)
    assert json.loads(encode({"inside": LETTER}, tags.JSON).data) == {"inside": written(TEXT)}
    assert msgspec.msgpack.decode(encode(LETTER, tags.MSGPACK).data) == written(RAW)
    assert msgspec.msgpack.decode(encode([Stamp(RAW)], tags.MSGPACK).data) == [{"picture": RAW}]


def test_bytes_of_a_program_come_back() -> None:
    tag, packed = writer({"kind": "object"})(LETTER)
    assert (tag, msgspec.msgpack.decode(packed)) == (tags.MSGPACK, written(RAW))
    read = reader({"kind": "object"}, read_signature(letters).output)
    assert read((tag, packed, None)) == LETTER


def test_another_alphabet_is_read_and_none_is_refused_with_its_field() -> None:
    stamps_ = codec(stamps)
    assert stamps_.decode(FakeBatch([(tags.JSON, b'{"picture": "-__-"}')]).core).columns == [[Stamp(RAW)]]
    bad = [
        (tags.JSON, b'{"picture": "*"}'),
        (tags.JSON, b'{"picture": "abc"}'),
        (tags.MSGPACK, b"\x81\xa7picture\xa1*"),
    ]
    errors = [error for _, error in stamps_.decode(FakeBatch(bad).core).errors]
    assert [error.field for error in errors] == ["$.picture"] * 3
    assert all("expected base64" in error.message for error in errors)
    [(_, long)] = codec(letters).decode(FakeBatch([(tags.JSON, b'{"default": "AAAAAAAA"}')]).core).errors
    assert "at most 3 bytes" in long.message


def test_the_schema_says_base64_both_ways() -> None:
    signature = read_signature(letters)
    for schema in (signature.input.schema, signature.output.schema):
        definitions: Any = schema["$defs"]
        fields = {**definitions["Letter"]["properties"], **definitions["Page"]["properties"]}
        for name in ("default", "encoded", "scan"):
            assert fields[name]["contentEncoding"] == "base64", name
            assert "format" not in fields[name]


def test_nothing_is_written_on_a_user_s_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for a moment: another thread may use the class meanwhile."""

    def refuse(kind: type, name: str, value: object) -> None:
        raise AssertionError(f"{kind.__name__}.{name} = {value!r}")

    monkeypatch.setattr(type(pydantic.BaseModel), "__setattr__", refuse, raising=False)
    adapter = Adapter(Letter)
    adapter.read_answer(msgspec.msgpack.decode(msgspec.msgpack.encode(adapter.to_sent(LETTER))))


def test_an_older_pydantic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pydantic, "VERSION", "2.12.5")
    with pytest.raises(TargetError, match=r"pydantic 2\.12\.5 is installed, and jitney needs 2\.13 or newer"):
        read_signature(letters)


def test_a_class_is_for_other_uses_what_it_was() -> None:
    before = Page.model_json_schema(), Page.__pydantic_validator__
    Adapter(Letter)
    assert Page.model_validate_json('{"scan": "AAAA"}').scan == b"AAAA"
    assert (Page.model_json_schema(), Page.__pydantic_validator__) == before
    assert Page.__pydantic_complete__


def test_what_the_user_chose_stays() -> None:
    class Hex(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(val_json_bytes="hex", ser_json_bytes="hex")
        raw: bytes
        page: Page

    class Chosen(pydantic.BaseModel):
        hex: Hex
        url: pydantic.Base64UrlBytes
        either: bytes | str

    adapter = Adapter(Chosen)
    page = {"scan": TEXT, "stamp": None}
    sent = {"hex": {"raw": "fbfffe", "page": page}, "url": "-__-", "either": "AAAA"}
    chosen = adapter.validate_json(json.dumps(sent))
    assert (chosen.hex.raw, chosen.hex.page.scan, chosen.url, chosen.either) == (RAW, RAW, RAW, b"AAAA")
    assert json.loads(adapter.to_json(chosen)) == sent


def test_bytes_come_and_leave_in_every_place() -> None:
    class Places(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(strict=True)
        pair: tuple[bytes, int]
        some: set[bytes]
        keys: dict[bytes, bytes]
        root: pydantic.RootModel[list[bytes]]

        @pydantic.field_validator("some")
        @classmethod
        def are_bytes(cls, value: set[bytes]) -> set[bytes]:
            assert value == {RAW}  # a validator of the user's sees them decoded
            return value

        @pydantic.computed_field
        @property
        def first(self) -> bytes:
            return self.pair[0]

    adapter = Adapter(Places)
    sent = {"pair": [TEXT, 1], "some": [TEXT], "keys": {TEXT: TEXT}, "root": [TEXT]}
    places = adapter.validate_json(json.dumps(sent))
    assert (places.pair, places.some, places.keys, places.root.root) == ((RAW, 1), {RAW}, {RAW: RAW}, [RAW])
    assert json.loads(adapter.to_json(places)) == {**sent, "first": TEXT}
    kept = {"pair": [RAW, 1], "some": [RAW], "keys": {TEXT: RAW}, "root": [RAW], "first": RAW}
    assert adapter.to_plain(places) == kept


def test_values_that_look_like_schemas_are_left_alone() -> None:
    class Odd(pydantic.BaseModel):
        type: Any = {"type": "bytes"}
        metadata: bytes = b"\xff"

    odd = Adapter(Odd).validate_json('{"metadata": "/w=="}')
    assert (odd.type, odd.metadata) == ({"type": "bytes"}, b"\xff")
    assert Adapter(Odd).json_schema("validation")["properties"]["metadata"]["default"] == "/w=="


class Size(tuple[int, int], enum.Enum):
    SMALL = (1, 2)


class Sized(pydantic.BaseModel):
    size: Size = Size.SMALL
    raw: bytes = b""


def test_members_of_an_enum_that_are_tuples_stay_what_they_are() -> None:
    adapter = Adapter(Sized)
    assert adapter.validate_python({"size": (1, 2)}) == Sized()
    assert adapter.validate_json(b'{"raw": "+/8="}') == Sized(raw=b"\xfb\xff")


def test_bytes_where_the_schema_allows_another_type_are_told_apart() -> None:
    class Mixed(pydantic.BaseModel):
        value: bytes | int | Page | None = None

    adapter = Adapter(Mixed)
    for value, as_json in [(RAW, TEXT), (3, 3), (None, None), (Page(scan=RAW), {"scan": TEXT, "stamp": None})]:
        assert json.loads(adapter.to_json(Mixed(value=value))) == {"value": as_json}
        assert adapter.validate_json(adapter.to_json(Mixed(value=value))).value == value
        assert adapter.validate_python(adapter.to_plain(Mixed(value=value))).value == value


def test_an_init_that_would_get_base64_is_refused_when_loaded() -> None:
    class Own(pydantic.BaseModel):
        raw: bytes

        def __init__(self, **data: Any) -> None:
            super().__init__(**data)

    def own(inputs: list[Own]) -> list[str]: ...

    with pytest.raises(TargetError, match="Own has its own `__init__`, which would get base64"):
        read_signature(own)


def test_a_manifest_holds_examples_with_bytes() -> None:
    assert plain(Page(scan=RAW)) == {"scan": TEXT, "stamp": None}


class Line(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", alias_generator=pydantic.alias_generators.to_camel)
    unit_price: float
    count: int = pydantic.Field(1, serialization_alias="n")

    @pydantic.computed_field
    @property
    def total(self) -> float:
        return self.unit_price * self.count


@pydantic.dataclasses.dataclass
class Note:
    text: str = pydantic.Field("", validation_alias="said")
    raw: bytes = pydantic.Field(b"", serialization_alias="octets")


class Order(pydantic.BaseModel):
    threshold: float = pydantic.Field(0.5, validation_alias="thr")
    kind: str = pydantic.Field("x", validation_alias=pydantic.AliasChoices(pydantic.AliasPath("deep", 0), "kind", "k"))
    hidden: int = pydantic.Field(0, exclude=True)
    lines: list[Line] = []
    note: Note | None = None
    by_name: int = pydantic.Field(0, alias="byName")
    data: Any = None


class ByName(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(validate_by_alias=False, validate_by_name=True)
    threshold: float = pydantic.Field(0.5, alias="thr")
    path: int = pydantic.Field(0, validation_alias=pydantic.AliasPath("a", "b"))


ORDER = Order(thr=0.9, k="y", lines=[Line(unitPrice=2.5, count=2)], note=Note(said="a", raw=RAW), byName=7)  # pyright: ignore[reportCallIssue]
NAMED = ByName.model_validate({"threshold": 0.9, "path": 3})


def round_trip(item: Any) -> tuple[Codec, Any]:
    def orders(inputs: Any) -> Any: ...

    orders.__annotations__ = {"inputs": list[item], "return": list[item]}
    return codec(orders), reader({"kind": "object"}, read_signature(orders).output)


NOTE = Note(said="a", raw=RAW)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("item", "value"),
    [
        (Order, ORDER),
        (ByName, NAMED),
        (dict[str, Order], {"a": ORDER}),
        (Note, NOTE),
        (dict[str, list[Note]], {"a": [NOTE]}),
    ],
)
def test_an_instance_is_sent_under_the_names_that_it_is_read_by(item: Any, value: Any) -> None:
    subject, _ = round_trip(item)
    tag, packed = writer({"kind": "object"})(value)
    decoded = subject.decode(FakeBatch([(tag, packed)]).core)
    assert (decoded.columns, decoded.errors) == ([[value]], [])
    assert subject.from_python([value]).columns == [[value]]
    assert subject.decode(FakeBatch([(tags.JSON, json.dumps(plain(value)).encode())]).core).columns == [[value]]
    assert ORDER.model_dump(by_alias=True)["lines"] == [{"unitPrice": 2.5, "n": 2, "total": 5.0}]


def test_bytes_that_no_type_speaks_of_are_sent_under_the_same_names() -> None:
    _, packed = writer({"kind": "object"})(ORDER.model_copy(update={"data": b"\xff"}))
    sent = msgspec.msgpack.decode(packed)
    assert (sent["thr"], sent["data"], sent["note"]) == (0.9, b"\xff", {"said": "a", "raw": RAW})


def test_values_without_dataclasses_of_pydantic_are_sent_as_they_are() -> None:
    values: list[Any] = [[[0.5] * 3] * 2, {"a": {"b": [1, "x"]}}, [{"a": [0.5]}, None], {1.5}, ([],)]
    for value in values:
        assert sent(value) is value


@pytest.mark.parametrize("value", [[None, NOTE], [1, "a", NOTE], [{"a": 1}, {"a": NOTE}], {"a": {"b": (1, NOTE)}}])
def test_a_dataclass_of_pydantic_is_found_among_others(value: Any) -> None:
    assert b"said" in writer({"kind": "object"})(value)[1]


class Deep(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    threshold: float = pydantic.Field(0.5, validation_alias=pydantic.AliasPath("a", "thr"))


class Deepest(pydantic.BaseModel):
    threshold: float = pydantic.Field(validation_alias=pydantic.AliasPath("a", "thr"))


class Either(pydantic.BaseModel):
    value: int | Deep | Deepest = 1


@pytest.mark.parametrize(
    "value",
    [Deep.model_validate({"a": {"thr": 0.9}}), Deepest(a={"thr": 0.9}), Either(value=Deepest(a={"thr": 0.5}))],  # pyright: ignore[reportCallIssue]
)
def test_a_name_inside_of_another_value_is_refused_with_what_to_pass(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"cannot be sent: `threshold` is read .* \(AliasPath\); pass a dict"):
        writer({"kind": "object"})([value])


class Needed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    lock: Any = pydantic.Field(default_factory=threading.Lock, exclude=True)
    token: str = pydantic.Field("none", exclude=True)
    key: str = pydantic.Field(exclude=True)
    size: int = pydantic.Field(5, exclude_if=lambda size: size == 0)


def test_what_a_type_leaves_out_is_sent_only_if_it_is_needed_and_shown_never() -> None:
    needed = Needed(token="hunter2", key="k", size=0)
    assert msgspec.msgpack.decode(writer({"kind": "object"})([needed])[1]) == [{"key": "k", "size": 0}]
    assert plain([needed]) == [{}]


@pytest.mark.parametrize("encoding", [tags.JSON, tags.MSGPACK])
@pytest.mark.parametrize(
    ("item", "answer", "written"),
    [
        (Order, ORDER, "threshold"),
        (Note, NOTE, "octets"),
        (list[Note], [NOTE], "octets"),
        (dict[str, Note] | None, {"a": NOTE}, "octets"),
    ],
)
def test_an_answer_is_read_by_the_names_that_it_was_written_under(
    item: Any, answer: Any, written: str, encoding: int
) -> None:
    subject, read = round_trip(item)
    batch, results = FakeBatch([(tags.JSON, "x")]), FakeResults()
    batch.encodings = [encoding]
    subject.encode([answer], Decoded([0], [["x"]]), None, batch.core, results.core)
    outcome: Any = results.outcomes[0]
    assert written.encode() in outcome.data
    assert read((outcome.tag, outcome.data, None)) == (answer)


class Offer(pydantic.BaseModel):
    unit_price: float = pydantic.Field(0.0, validation_alias="unitPrice")


class Priced(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)
    unit_price: float = pydantic.Field(0.0, alias="unitPrice")
    count: int = pydantic.Field(0, serialization_alias="n")


@pytest.mark.parametrize(
    ("item", "answer"),
    [
        (Offer, {"unitPrice": 9.5}),
        (Offer, {"unit_price": 9.5}),
        (Priced, {"unitPrice": 9.5, "count": 2}),
        (Priced, {"unit_price": 9.5, "n": 2}),
        (Order, {"thr": 9.5, "k": "y"}),
        (Order, {"threshold": 9.5, "deep": ["y"]}),
        (ByName, {"thr": 9.5}),
        (ByName, {"threshold": 9.5}),
    ],
)
def test_an_answer_given_as_a_dict_is_read_by_either_name(item: Any, answer: dict[str, Any]) -> None:
    _, read = round_trip(item)
    found: dict[str, Any] = read((tags.MSGPACK, msgspec.msgpack.encode(answer), None)).__dict__
    assert next(iter(found.values())) == 9.5
    assert found.get("count", 2) == 2
    assert found.get("kind", "x") == ("x" if item is not Order else "y")


class Color(enum.Enum):
    RED = "red"


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    when: datetime.datetime
    key: uuid.UUID
    color: Color = pydantic.Field(Color.RED, serialization_alias="colour")
    place: pathlib.Path
    pair: tuple[int, float]
    some: set[int]
    raw: bytes = RAW
    by_number: dict[int, str] = {}
    inner: "Strict | None" = None


class InPart(pydantic.BaseModel):
    when: Annotated[datetime.date, pydantic.Strict()]
    raw: bytes = RAW


STRICT: dict[str, Any] = {
    "when": datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC),
    "key": uuid.UUID(int=7),
    "place": pathlib.Path("/a"),
    "pair": (1, math.inf),
    "some": {1, 2},
    "by_number": {3: "x"},
}


@pytest.mark.parametrize(
    ("item", "value"),
    [
        (Strict, Strict(**STRICT, inner=Strict(**STRICT))),
        (InPart, InPart(when=datetime.date(2026, 11, 22))),
        (list[InPart], [InPart(when=datetime.date(2026, 11, 22))]),
    ],
)
def test_strict_models_come_as_msgpack_as_they_do_as_json(item: Any, value: Any) -> None:
    subject, read = round_trip(item)
    tag, packed = writer({"kind": "object"})(value)
    decoded = subject.decode(FakeBatch([(tag, packed)]).core)
    assert (decoded.columns, decoded.errors) == ([[value]], [])
    batch, results = FakeBatch([(tags.JSON, "x")]), FakeResults()
    batch.encodings = [tags.MSGPACK]
    subject.encode([value], Decoded([0], [["x"]]), None, batch.core, results.core)
    outcome: Any = results.outcomes[0]
    assert read((outcome.tag, outcome.data, None)) == value


def test_strict_models_stay_strict_in_msgpack() -> None:
    subject, _ = round_trip(Strict)
    sent = msgspec.msgpack.decode(writer({"kind": "object"})(Strict(**STRICT))[1])
    for name, wrong in {"pair": ["1", 2.0], "when": "today", "raw": 3}.items():
        packed = msgspec.msgpack.encode(sent | {name: wrong})
        [(_, error)] = subject.decode(FakeBatch([(tags.MSGPACK, packed)]).core).errors
        assert str(error.field).startswith(f"$.{name}")


class Loose(pydantic.BaseModel):
    name: pydantic.StrictStr
    data: Any = None
    keys: dict[Any, int] = {}


def test_strict_parts_leave_what_no_type_speaks_of_as_it_came() -> None:
    subject, read = round_trip(Loose)
    value = Loose(name="a", data=b"\xff\x00", keys={3: 1})
    packed = msgspec.msgpack.encode(value.model_dump())
    assert subject.decode(FakeBatch([(tags.MSGPACK, packed)]).core).columns == [[value]]
    assert read((tags.MSGPACK, packed, None)) == value


def test_what_strict_models_write_in_their_own_way_is_read_as_before() -> None:
    class Hex(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(strict=True, val_json_bytes="hex", ser_json_bytes="hex")
        raw: bytes

    class Beside(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(strict=True)
        raw: bytes | str

    for kind in (Hex, Beside):
        assert Adapter(kind).validate_unpacked({"raw": b"abcd"}).raw == b"abcd"


class Needy(pydantic.BaseModel):
    hidden: int = pydantic.Field(exclude=True)
    shown: int = 1


class OwnInit(pydantic.BaseModel):
    threshold: float = pydantic.Field(0.5, serialization_alias="thr")

    def __init__(self, **data: Any) -> None:
        super().__init__(**data)


class Circle(pydantic.BaseModel):
    kind: Literal["circle"] = pydantic.Field("circle", serialization_alias="k")


class Square(pydantic.BaseModel):
    kind: Literal["square"] = pydantic.Field("square", serialization_alias="k")


@pytest.mark.parametrize(
    ("item", "written"),
    [
        (Needy, {"shown": 1}),
        (OwnInit, {"thr": 0.9}),
        (Annotated[Circle | Square, pydantic.Field(discriminator="kind")], {"k": "square"}),
    ],
)
def test_an_answer_that_lacks_what_its_type_needs_stays_a_dict(item: Any, written: Any) -> None:
    _, read = round_trip(item)
    assert read((tags.MSGPACK, msgspec.msgpack.encode(written), None)) == written


def test_one_type_without_other_names_is_read_as_pydantic_does() -> None:
    adapter = Adapter(Page)
    assert adapter.read_answer == adapter.validate_unpacked


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    photo: bytes


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: int


Pet = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


@pytest.mark.parametrize(
    ("item", "sent", "value"),
    [
        (list[Cat], [{"photo": TEXT}], [Cat(photo=RAW)]),
        (list[dict[str, Cat]], [{"a": {"photo": TEXT}}], [{"a": Cat(photo=RAW)}]),
        (Cat | Dog, {"tricks": 3}, Dog(tricks=3)),
        (Dog | None, None, None),
        (Pet, {"kind": "cat", "photo": TEXT}, Cat(photo=RAW)),
        (list[Pet], [{"kind": "dog", "tricks": 3}], [Dog(tricks=3)]),
    ],
)
def test_models_stand_in_lists_dicts_and_unions(item: Any, sent: Any, value: Any) -> None:
    def pets(inputs: Any) -> Any: ...

    pets.__annotations__ = {"inputs": list[item], "return": list[item]}
    subject = codec(pets)
    assert subject.decode(FakeBatch([(tags.JSON, json.dumps(sent).encode())]).core).columns == [[value]]
    assert subject.from_python([value]).columns == [[value]]
    batch, results = FakeBatch([(tags.JSON, "x")]), FakeResults()
    subject.encode([value], Decoded([0], [["x"]]), None, batch.core, results.core)
    subject.validate([value], 1)
    outcome: Any = results.outcomes[0]
    assert subject.decode(FakeBatch([(tags.JSON, outcome.data)]).core).columns == [[value]]
    tag, packed = writer({"kind": "object"})(value)
    assert reader({"kind": "object"}, read_signature(pets).output)((tag, packed, None)) == value
    [(_, error)] = subject.decode(FakeBatch([(tags.JSON, b'[{"a": 1}, 2]')]).core).errors
    assert error.status == 422
