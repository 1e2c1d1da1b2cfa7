"""One batch through a replica: every item gets exactly one outcome, its own, whatever the model does."""

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jitney
import msgspec
import numpy as np
import pydantic
import pytest
from batches import answer, one
from fake_link import TAG_JSON, TAG_MSGPACK, TAG_TEXT, FakeBatch, Outcome
from hypothesis import given
from hypothesis import strategies as st
from jitney.context import enter, leave
from jitney.errors import Cancelled, DeadlineExceeded, InvalidInput, Overloaded, RequestError, Unavailable


def reasons(outcomes: list[Outcome]) -> list[str]:
    return [outcome.reason for outcome in outcomes]


def text(outcome: Outcome) -> str:
    tag, data, _ = outcome.value
    assert tag == TAG_TEXT
    return data.decode()


def shout(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]


def test_every_item_gets_its_own_answer() -> None:
    assert [text(outcome) for outcome in one(shout, ["a", "b", "c"])] == ["A", "B", "C"]


def test_what_cannot_be_decoded_never_reaches_predict() -> None:
    class Point(msgspec.Struct):
        x: int

    seen: list[int] = []

    def predict(points: list[Point]) -> list[int]:
        seen.extend(point.x for point in points)
        return [point.x + 1 for point in points]

    outcomes = one(predict, [b'{"x": 1}', b'{"x": "no"}', b"{", b'{"x": 4}'], tag=TAG_JSON)
    assert reasons(outcomes) == ["ok", "invalid_input", "malformed_body", "ok"]
    assert outcomes[1].field == "$.x"
    assert (outcomes[1].status, outcomes[2].status) == (422, 400)
    assert [outcomes[0].value[1], outcomes[3].value[1]] == [b"2", b"5"]
    assert seen == [1, 4]


def test_a_batch_of_nothing_but_bad_items_never_starts() -> None:
    def predict(numbers: list[int]) -> list[int]:
        raise AssertionError("must not be called")

    link = answer(predict, FakeBatch(1, [b"x", b"[]"], TAG_JSON))
    assert reasons(link.outcomes[1]) == ["malformed_body", "invalid_input"]
    assert link.begun == []


def test_what_nobody_waits_for_is_not_computed_and_reported_as_left_out() -> None:
    """The front takes the verdict `cancelled` of a worker for "left out": it knows whether the item expired."""
    seen: list[str] = []

    def predict(texts: list[str]) -> list[str]:
        seen.extend(texts)
        return texts

    assert reasons(one(predict, ["a", "b", "c"], unwanted={1})) == ["ok", "cancelled", "ok"]
    assert seen == ["a", "c"]
    link = answer(predict, FakeBatch(1, ["a"], unwanted={0}))
    assert link.begun == []


@pytest.mark.parametrize("error", [ValueError("bad luck"), SystemExit(3), KeyboardInterrupt()])
def test_one_of_64_that_makes_predict_raise_fails_alone(error: BaseException) -> None:
    calls: list[int] = []

    def predict(texts: list[str]) -> list[str]:
        calls.append(len(texts))
        if "17" in texts:
            raise error
        return shout(texts)

    outcomes = one(predict, [str(number) for number in range(64)], max_batch_size=64)
    assert reasons(outcomes) == ["model_failed" if number == 17 else "ok" for number in range(64)]
    assert type(error).__name__ in outcomes[17].detail
    assert "Traceback" not in outcomes[17].detail
    assert [text(outcome) for outcome in outcomes if outcome.reason == "ok"] == [str(n) for n in range(64) if n != 17]
    assert len(calls) - 1 <= 12


def test_only_a_batch_that_ran_once_and_raised_nothing_teaches_what_a_batch_costs() -> None:
    def predict(texts: list[str]) -> list[str]:
        if "bad" in texts:
            raise RuntimeError
        return texts

    link = answer(predict, FakeBatch(1, ["a", "b"], TAG_TEXT), FakeBatch(2, ["a", "bad"], TAG_TEXT))
    assert link.clean == [True, False]


def test_items_one_by_one_say_what_a_batch_costs_too() -> None:
    def predict(text: str) -> str:
        if text == "bad":
            raise RuntimeError
        return text

    batches = [FakeBatch(1, ["a", "b"], TAG_TEXT), FakeBatch(2, ["a", "bad"], TAG_TEXT)]
    assert answer(predict, *batches, batched=False).clean == [True, False]


def test_items_one_by_one_get_their_own_arrays() -> None:
    def predict(text: str) -> np.ndarray:
        return np.full(len(text), len(text))

    outcomes = one(predict, ["a", "bbb", "cc", "dddd"], batched=False, unwanted={2})
    assert reasons(outcomes) == ["ok", "ok", "cancelled", "ok"]
    assert [outcomes[place].value.tolist() for place in (0, 1, 3)] == [[1], [3, 3, 3], [4, 4, 4, 4]]


def test_predict_may_change_its_list_before_it_raises() -> None:
    def predict(texts: list[str]) -> list[str]:
        if "bad" in texts:
            texts.clear()
            raise ValueError("bad")
        return shout(texts)

    outcomes = one(predict, ["a", "b", "bad", "c"])
    assert reasons(outcomes) == ["ok", "ok", "model_failed", "ok"]
    assert [text(outcomes[place]) for place in (0, 1, 3)] == ["A", "B", "C"]


def test_without_retry_nothing_is_called_twice() -> None:
    calls: list[int] = []

    def predict(texts: list[str]) -> list[str]:
        calls.append(len(texts))
        raise ValueError("no")

    assert reasons(one(predict, ["a", "b", "c"], retry=False)) == ["model_failed"] * 3
    assert calls == [3]


def test_invalid_input_raised_for_one_item_keeps_its_status() -> None:
    def predict(texts: list[str]) -> list[str]:
        if "long" in texts:
            raise InvalidInput("too long", status=413, field="$.text")
        return texts

    outcomes = one(predict, ["a", "long", "b"])
    assert reasons(outcomes) == ["ok", "invalid_input", "ok"]
    assert (outcomes[1].detail, outcomes[1].status, outcomes[1].field) == ("too long", 413, "$.text")


@pytest.mark.parametrize("error", [Overloaded("come back"), Unavailable("no database"), DeadlineExceeded("too slow")])
def test_a_model_that_cannot_answer_now_is_not_asked_again_and_says_so(error: RequestError) -> None:
    calls: list[int] = []

    def predict(texts: list[str]) -> list[str]:
        calls.append(len(texts))
        raise error

    outcomes = one(predict, ["a", "b", "c"])
    assert reasons(outcomes) == [error.reason] * 3
    assert outcomes[0].detail == error.message
    assert calls == [3]


def test_a_model_that_cannot_answer_now_is_asked_no_more_while_a_guilty_item_is_searched() -> None:
    class NoDatabase(Unavailable):
        reason = "no_database"

    calls: list[int] = []

    def predict(texts: list[str]) -> list[str]:
        calls.append(len(texts))
        raise ValueError("no") if len(calls) == 1 else NoDatabase("away")

    assert reasons(one(predict, ["a"] * 8)) == ["unavailable"] * 8
    assert calls == [8, 4, 4]


def test_what_was_asked_for_a_client_that_left_is_no_failure_of_the_model(caplog: pytest.LogCaptureFixture) -> None:
    def predict(texts: list[str]) -> list[str]:
        error = Cancelled("the caller went away")
        error.asked = "embedder"
        raise error

    with caplog.at_level(logging.DEBUG):
        assert reasons(one(predict, ["a"])) == ["cancelled"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_model_may_return_that_it_cannot_answer_one_item_now() -> None:
    def predict(texts: list[str]) -> list[str | Exception]:
        return [texts[0], Unavailable("no database")]

    assert reasons(one(predict, ["a", "b"])) == ["ok", "unavailable"]


def test_a_model_says_when_to_come_back() -> None:
    def predict(texts: list[str]) -> list[str | Exception]:
        late = Overloaded("full", retry_after_s=2.5)
        odd = Unavailable("away")
        odd.retry_after_s = cast("float", "soon")
        return [late, Unavailable("away", retry_after_s=7), odd, Overloaded("full")]

    outcomes = one(predict, ["a"] * 4)
    assert [outcome.retry_after_s for outcome in outcomes] == [2.5, 7, None, None]


@pytest.mark.parametrize("raises", [False, True])
def test_a_process_that_predict_forked_does_not_come_back_into_the_worker(raises: bool) -> None:
    children: list[int] = []

    def predict(texts: list[str]) -> list[str]:
        child = os.fork()
        if child:
            children.append(child)
        elif raises:
            raise ValueError("in the child")
        return texts

    assert reasons(one(predict, ["a", "b"])) == ["ok", "ok"]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [1]


def test_what_the_client_is_meant_to_read_is_no_fault_for_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    def predict(texts: list[str]) -> list[str]:
        if "bad" in texts:
            raise InvalidInput("not this")
        if "worse" in texts:
            raise ValueError("nor this")
        return texts

    assert reasons(one(predict, ["a", "bad"])) == ["ok", "invalid_input"]
    assert "not this" not in capsys.readouterr().err
    assert reasons(one(predict, ["a", "worse"])) == ["ok", "model_failed"]
    assert "nor this" in capsys.readouterr().err


def test_an_exception_at_an_index_fails_that_item_alone_in_one_call() -> None:
    calls: list[int] = []

    def predict(texts: list[str]) -> list[str | Exception]:
        calls.append(len(texts))
        return [texts[0], InvalidInput("not this", status=409), ValueError("nor this"), texts[3]]

    outcomes = one(predict, ["a", "b", "c", "d"])
    assert reasons(outcomes) == ["ok", "invalid_input", "model_failed", "ok"]
    assert outcomes[1].status == 409
    assert calls == [4]


@pytest.mark.parametrize("wrong", [None, [], ["a"] * 5, "abc", {"a": 1}, 7, np.zeros((4, 2)), object()])
def test_a_wrong_answer_fails_its_batch_and_not_the_next(wrong: object) -> None:
    answers = iter([wrong])

    def predict(texts: list[str]) -> Any:
        return next(answers, shout(texts))

    link = answer(predict, FakeBatch(1, ["a", "b", "c"]), FakeBatch(2, ["d", "e"]))
    assert reasons(link.outcomes[1]) == ["invalid_output"] * 3
    assert "3" in link.outcomes[1][0].detail
    assert [text(outcome) for outcome in link.outcomes[2]] == ["D", "E"]


def test_an_answer_that_cannot_be_encoded_fails_alone() -> None:
    def predict(texts: list[str]) -> list[Any]:
        return [{"good": 1}, {"bad": object()}, {"good": 3}]

    assert reasons(one(predict, ["a", "b", "c"])) == ["ok", "invalid_output", "ok"]


def test_one_item_at_a_time_when_predict_takes_no_batches() -> None:
    calls: list[str] = []

    def predict(text: str) -> np.ndarray:
        calls.append(text)
        if text == "bad":
            raise ValueError("bad")
        return np.array([len(text)], np.int64)

    outcomes = one(predict, ["a", "bad", "ccc"], batched=False)
    assert reasons(outcomes) == ["ok", "model_failed", "ok"]
    assert [outcomes[0].value.tolist(), outcomes[2].value.tolist()] == [[1], [3]]
    assert calls == ["a", "bad", "ccc"]


def test_each_distinct_failure_is_printed_once_and_begins_in_user_code(capsys: pytest.CaptureFixture[str]) -> None:
    def predict(texts: list[str]) -> list[str]:
        raise ValueError("told once")

    answer(predict, FakeBatch(1, ["a", "b"]), FakeBatch(2, ["c"]))
    printed = capsys.readouterr().err
    assert printed.count("Traceback") == 1
    assert "told once" in printed
    assert "splitting.py" not in printed


def test_context_names_the_items_of_each_call() -> None:
    enter("shout", 0, None)
    seen: list[tuple[int, ...]] = []

    def predict(texts: list[str]) -> list[str]:
        seen.append(jitney.context().ids)
        assert jitney.context().method == "predict"
        if "bad" in texts:
            raise ValueError
        return texts

    try:
        answer(predict, FakeBatch(7, ["a", "bad"]), FakeBatch(8, ["b"]))
        assert seen == [(7000, 7001), (7000,), (7001,), (8000,)]
        assert jitney.context().ids == ()
        assert jitney.context().method == ""
    finally:
        leave()


class Pair(NamedTuple):
    left: np.ndarray
    right: np.ndarray


@dataclass(frozen=True)
class Frozen:
    left: np.ndarray
    right: np.ndarray


@pytest.mark.parametrize("wrap", [lambda array: array, list, lambda array: Pair(array, array), lambda a: Frozen(a, a)])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
@pytest.mark.parametrize("overlapped", [False, True])
def test_a_model_that_reuses_its_output_arrays_gives_right_answers(
    wrap: Callable[[np.ndarray], Any], overlapped: bool
) -> None:
    buffer = np.zeros((2, 1), np.int64)

    def predict(texts: list[str]) -> Any:
        buffer[:] = [[int(text)] for text in texts]
        return wrap(buffer)

    batches = [FakeBatch(number, [str(number * 2), str(number * 2 + 1)]) for number in range(50)]
    link = answer(predict, *batches, overlapped=overlapped)
    for number in range(50):
        for place, outcome in enumerate(link.outcomes[number]):
            named: dict[str, Any] = outcome.value if hasattr(outcome.value, "keys") else {"right": outcome.value}
            assert named["right"].tolist() == [number * 2 + place]


class Slot(msgspec.Struct):
    n: Any


@dataclass
class Mutable:
    n: Any


WRAPS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda row: row,
    "dict": lambda row: {"n": row},
    "dataclass": Mutable,
    "struct": Slot,
    "nested": lambda row: [[row]],
    "memoryview": lambda row: row.data,
    "image": lambda row: jitney.Image(np.broadcast_to(row.astype(np.uint8), (2, 2))),
}


def number_in(outcome: Outcome) -> int:
    """Find the only number of an answer, however it was wrapped."""
    answer = outcome.value
    if not isinstance(answer, tuple):  # an array, or arrays by name
        return int(answer["n"].item() if hasattr(answer, "keys") else answer.item())
    _, data, media_type = cast("tuple[int, bytes, str | None]", answer)
    if media_type == "application/octet-stream":
        return int.from_bytes(data, "little")
    if media_type is not None:
        return int(jitney.Image(data).to_numpy("L").max())
    value: Any = msgspec.json.decode(data)
    while not isinstance(value, (int, float)):
        value = value["n"] if isinstance(value, dict) else value[0]  # pyright: ignore[reportUnknownVariableType]
    return int(value)


class Reuser:
    """Computes every answer into the same memory, and raises for a 13."""

    def __init__(self, wrap: Callable[[np.ndarray], Any]) -> None:
        self.buffer = np.zeros((64, 1), np.int64)
        self.wrap = wrap

    def predict(self, texts: list[str]) -> list[Any]:
        if "13" in texts:
            self.buffer[:] = -1
            raise ValueError(13)
        self.buffer[: len(texts)] = [[int(text)] for text in texts]
        return [self.wrap(row) for row in self.buffer[: len(texts)]]

    def rows(self, texts: list[str]) -> np.ndarray:
        self.predict(texts)
        return self.buffer[: len(texts)]

    def one(self, text: str) -> Any:
        return self.predict([text])[0]


def test_parts_of_a_split_keep_their_answers_when_the_model_reuses_its_array() -> None:
    for overlapped in (False, True):
        link = answer(Reuser(np.asarray).rows, FakeBatch(1, [str(n) for n in range(64)]), overlapped=overlapped)
        outcomes = link.outcomes[1]
        assert outcomes.pop(13).reason == "model_failed"
        assert [number_in(outcome) for outcome in outcomes] == [n for n in range(64) if n != 13]


@pytest.mark.parametrize("kind", WRAPS)
@pytest.mark.parametrize("mode", ["split", "one by one", "overlapped", "overlapped one by one"])
def test_reused_memory_inside_any_answer_never_reaches_another_item(kind: str, mode: str) -> None:
    if kind == "image":
        pytest.importorskip("PIL.Image")
    model = Reuser(WRAPS[kind])
    numbers = list(range(40)) if mode == "split" else [n for n in range(40) if n != 13]
    batches = [FakeBatch(place, [str(n) for n in numbers[place * 8 : place * 8 + 8]]) for place in range(5)]
    is_one = mode.endswith("one by one")
    predict = model.one if is_one else model.predict
    link = answer(predict, *batches, overlapped=mode.startswith("overlapped"), batched=not is_one)
    for batch in batches:
        for item, outcome in zip(batch.items, link.outcomes[batch.id], strict=True):
            if item == "13":
                assert outcome.reason == "model_failed"
            else:
                assert number_in(outcome) == int(item)


def test_a_reused_pillow_image_bytearray_or_list_is_not_sent_twice() -> None:
    pillow = pytest.importorskip("PIL.Image")
    picture, octets, answers = pillow.new("L", (2, 2)), bytearray(8), [0]

    def predict(texts: list[str]) -> list[Any]:
        kind, number = texts[0].split()
        picture.putpixel((0, 0), int(number))
        octets[:] = int(number).to_bytes(8, "little")
        answers[0] = int(number)
        return {"pillow": [picture], "octets": [octets], "list": answers}[kind]

    kinds = ["pillow", "octets", "list"] * 10
    batches = [FakeBatch(place, [f"{kind} {place}"]) for place, kind in enumerate(kinds)]
    link = answer(predict, *batches, overlapped=True)
    assert [number_in(link.outcomes[place][0]) for place in range(30)] == list(range(30))


def test_one_call_alone_is_spared_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def copy_output(output: object) -> object:
        raise AssertionError("must not be called")

    monkeypatch.setattr("jitney.worker.replica.copy_output", copy_output)
    array = np.zeros((3, 2))

    def predict(texts: list[str]) -> np.ndarray:
        return array

    def predict_one(text: str) -> np.ndarray:
        return array

    assert reasons(one(predict, ["a", "b", "c"])) == ["ok"] * 3
    assert reasons(one(predict_one, ["a"], batched=False)) == ["ok"]


@pytest.mark.parametrize("tag", [TAG_JSON, TAG_MSGPACK])
def test_items_changed_in_place_before_predict_raises_are_fresh_again(tag: int) -> None:
    class Point(msgspec.Struct):
        n: int

    def doubles(points: list[Point]) -> list[int]:
        for point in points:
            point.n *= 2
        if any(point.n < 0 for point in points):
            raise ValueError("negative")
        return [point.n for point in points]

    def pops(points: list[dict[str, Any]]) -> list[int]:
        numbers = [point.pop("n") for point in points]
        if any(number < 0 for number in numbers):
            raise ValueError("negative")
        return [2 * number for number in numbers]

    encode = msgspec.json.encode if tag == TAG_JSON else msgspec.msgpack.encode
    for predict in (doubles, pops):
        items = [encode({"n": -1 if n == 5 else n}) for n in range(16)]
        items[3] = b"\xc1"  # of neither format: positions and places differ from here on
        outcomes = one(predict, items, tag=tag)
        assert outcomes[3].reason in ("malformed_body", "invalid_input")
        assert (outcomes[5].reason, outcomes[5].detail) == ("model_failed", "ValueError: negative")
        assert [number_in(outcomes[n]) for n in range(16) if n not in (3, 5)] == [
            2 * n for n in range(16) if n not in (3, 5)
        ]


def test_a_copy_that_fails_costs_no_more_than_its_own_part() -> None:
    class Full(np.ndarray):
        """An array on a device without room for a copy of it."""

        __module__ = "numpy"

        def copy(self, order: object = "C") -> Any:
            raise MemoryError("out of memory")

    buffer = np.zeros((2, 1), np.int64)

    def predict(texts: list[str]) -> Any:
        buffer[:] = [[int(text)] for text in texts]
        return (buffer.astype(complex) if texts == ["4", "5"] else buffer).view(Full)

    batches = [FakeBatch(number, [str(2 * number), str(2 * number + 1)]) for number in range(5)]
    link = answer(predict, *batches, overlapped=True)
    for number in (0, 1, 3, 4):
        assert [number_in(outcome) for outcome in link.outcomes[number]] == [2 * number, 2 * number + 1]
    assert reasons(link.outcomes[2]) == ["invalid_output"] * 2


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), RuntimeError("no")])
@pytest.mark.parametrize("overlapped", [False, True])
def test_whatever_user_code_raises_outside_predict_fails_its_item_alone(error: BaseException, overlapped: bool) -> None:
    @dataclass
    class Item:
        n: int

        def __post_init__(self) -> None:
            if self.n == 1:
                raise error

    class Answer:
        def __array__(self) -> np.ndarray:
            raise error

    def predict(items: list[Item]) -> list[Any]:
        return [Answer() if item.n == 2 else item.n for item in items]

    batch = FakeBatch(1, [b'{"n": %d}' % n for n in range(4)], TAG_JSON)
    outcomes = answer(predict, batch, overlapped=overlapped).outcomes[1]
    assert reasons(outcomes) == ["ok", "model_failed", "invalid_output", "ok"]
    assert [number_in(outcomes[place]) for place in (0, 3)] == [0, 3]


@pytest.mark.parametrize("overlapped", [False, True])
def test_an_output_that_ends_the_process_when_looked_at_does_not(overlapped: bool) -> None:
    class Rows:
        shape = (2, 1)

        def __array__(self) -> np.ndarray:
            raise SystemExit

    def predict(texts: list[str]) -> Any:
        return Rows() if "a" in texts else texts

    link = answer(predict, FakeBatch(1, ["a", "b"]), FakeBatch(2, ["c"]), overlapped=overlapped)
    assert reasons(link.outcomes[1]) == ["invalid_output"] * 2
    assert reasons(link.outcomes[2]) == ["ok"]


def test_decoding_that_fails_as_a_whole_leaves_the_worker_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def values(_: FakeBatch) -> list[Any]:
        raise SystemExit

    monkeypatch.setattr(FakeBatch, "values", values)
    assert reasons(one(shout, ["a", "b"])) == ["internal"] * 2


KINDS = ["good", "raise", "return", "odd", "unwanted"]


@given(
    st.lists(
        st.lists(st.sampled_from(["good", "raise", "return", "odd", "unwanted"]), min_size=1, max_size=9), max_size=6
    ),
    st.booleans(),
    st.booleans(),
)
def test_every_item_gets_exactly_one_outcome(kinds: list[list[str]], overlapped: bool, batched: bool) -> None:
    def respond(text: str) -> Any:
        kind = text.partition(" ")[0]
        return {"return": ValueError("returned"), "odd": object()}.get(kind, text)

    def predict(texts: list[str]) -> list[Any]:
        if any(text.startswith("raise") for text in texts):
            raise RuntimeError("raised")
        return [respond(text) for text in texts]

    def predict_one(text: str) -> Any:
        return predict([text])[0]

    batches = [
        FakeBatch(
            number,
            [f"{kind} {number}.{place}" for place, kind in enumerate(items)],
            unwanted={place for place, kind in enumerate(items) if kind == "unwanted"},
        )
        for number, items in enumerate(kinds)
    ]
    link = answer(predict if batched else predict_one, *batches, overlapped=overlapped, batched=batched)
    expected = {"return": "model_failed", "odd": "invalid_output", "unwanted": "cancelled"}
    for batch in batches:
        for item, outcome in zip(batch.items, link.outcomes[batch.id], strict=True):
            kind = item.partition(" ")[0]
            if kind == "good" and outcome.reason == "ok":
                assert text(outcome) == item
            elif kind == "raise":
                assert outcome.reason == "model_failed"
            elif kind == "good":  # it may be among the unresolved when many raise
                assert outcome.reason == "model_failed"
                assert sum(other.startswith("raise") for other in batch.items) > 2
            else:
                assert outcome.reason in (expected[kind], "model_failed")


THREADS: list[int] = []


@dataclass
class Noted:
    word: str

    def __post_init__(self) -> None:
        THREADS.append(threading.get_ident())


class Checked(pydantic.BaseModel):
    word: str

    @pydantic.field_validator("word")
    @classmethod
    def check(cls, word: str) -> str:
        THREADS.append(threading.get_ident())
        return word

    @pydantic.field_serializer("word")
    def write(self, word: str) -> str:
        THREADS.append(threading.get_ident())
        return word


@pytest.mark.parametrize("kind", [Noted, Checked])
def test_code_of_users_runs_on_the_thread_of_predict_while_batches_overlap(kind: type[Any]) -> None:
    def predict(items: Any) -> Any:
        return items

    predict.__annotations__ = {"items": list[kind], "return": list[kind]}
    THREADS.clear()
    batches = [FakeBatch(number, [b'{"word": "x"}'], TAG_JSON) for number in range(5)]
    link = answer(predict, *batches, overlapped=True)
    assert [reasons(link.outcomes[number]) for number in range(5)] == [["ok"]] * 5
    assert len(THREADS) >= 5 and set(THREADS) == {threading.get_ident()}
