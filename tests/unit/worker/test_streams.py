"""A `predict` that is a generator: its parts leave at each step, and each item ends once."""

import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any, cast

import jitney
import numpy as np
import pytest
from batches import answer, make
from fake_link import TAG_JSON, FakeBatch, FakeLink, Outcome
from jitney.codecs import Codec
from jitney.config.layers import DeploymentOptions
from jitney.errors import InvalidInput, InvalidOutput, WorkerBroken
from jitney.signature.annotations import read_signature
from jitney.worker.gauge import Gauge
from jitney.worker.health import FAILED_BATCHES
from jitney.worker.pipeline import Loop
from jitney.worker.streams.whole import Endless, whole


def texts(outcomes: list[Outcome]) -> list[str | None]:
    """Return the whole answers; None for an item that ended without one, the reason for one that failed."""
    return [
        outcome.reason if outcome.reason != "ok" else outcome.value and outcome.value[1].decode()
        for outcome in outcomes
    ]


def run(predict: Callable[..., Any], items: list[Any], takes_parts: set[int], **options: Any) -> FakeLink:
    tag = options.pop("tag", 2)
    return answer(predict, FakeBatch(1, items, tag, takes_parts=takes_parts), **options)


def spell(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
    left = [list(text) for text in texts]
    while any(left):
        yield [letters.pop(0) if letters else jitney.End() for letters in left]


def spell_one(text: str) -> Iterator[jitney.Step[str]]:
    yield from text
    yield jitney.End("!", reason="length", usage=jitney.Usage(len(text), len(text) + 1))


def test_parts_leave_step_by_step_and_an_item_whose_client_takes_none_gets_them_together() -> None:
    link = run(spell, ["ab", "cde", ""], {1})
    assert link.said[1] == [(1, "c"), (1, "d"), (1, "e")]
    assert texts(link.outcomes[1]) == ["ab", None, ""]
    assert link.ends[1] == {index: ("stop", None) for index in range(3)}
    assert link.clean == [True]


def test_a_generator_of_one_item_says_how_it_ended() -> None:
    link = run(spell_one, ["ab", "c"], {0}, batched=False)
    assert link.said[1] == [(0, "a"), (0, "b"), (0, "!")]
    assert texts(link.outcomes[1]) == [None, "c!"]
    assert link.ends[1] == {0: ("length", (2, 3)), 1: ("length", (1, 2))}


def test_a_step_without_anything_new_sends_nothing() -> None:
    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        for text in (None, "a", None, "b"):
            yield [text for _ in texts]

    link = run(predict, ["x"], {0})
    assert link.said[1] == [(0, "a"), (0, "b")]
    assert len(link.sent_early) == 3, "two parts and the end"


def run_paused(predict: Callable[..., Any], paused: list[int], waits: int, **options: Any) -> FakeLink:
    """Run a batch of two items, of which some are paused until the worker has waited so often."""
    link = FakeLink([FakeBatch(1, ["ab", "cd"], takes_parts={0, 1})])
    link.stopped = paused
    link.on_wait = lambda: paused.clear() if link.waits == waits else None
    Loop(cast("Any", link), make(predict, link, **options), Gauge(), crash=lambda: pytest.fail("it crashed")).run()
    return link


def test_a_generator_of_one_item_is_asked_for_no_part_while_its_client_does_not_read() -> None:
    link = run_paused(spell_one, [1000], waits=3, batched=False)
    assert link.said[1] == [(0, "a"), (0, "b"), (0, "!"), (1, "c"), (1, "d"), (1, "!")]
    assert link.waits == 3


def test_a_generator_of_a_batch_goes_on_while_one_of_its_clients_reads() -> None:
    link = run_paused(spell, [1000], waits=1)
    assert (link.said[1], link.waits) == ([(0, "a"), (1, "c"), (0, "b"), (1, "d")], 0)
    link = run_paused(spell, [1000, 1001], waits=2)
    assert (link.said[1], link.waits) == ([(0, "a"), (1, "c"), (0, "b"), (1, "d")], 2)


def test_a_worker_that_is_replaced_names_the_generator_that_failed() -> None:
    def shout(texts: list[str]) -> Iterator[list[str]]:
        yield texts[:0]
        raise ValueError

    link = FakeLink([FakeBatch(number, ["a"]) for number in range(FAILED_BATCHES)])
    replica = make(shout, link, method="shout")
    with pytest.raises(WorkerBroken, match="shout failed for 8 batches in a row"):
        Loop(cast("Any", link), replica, Gauge(), crash=lambda: pytest.fail("it crashed")).run()


def test_the_whole_answer_may_be_another_than_the_parts() -> None:
    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str, list[int]]]]:
        yield ["preview" for _ in texts]
        yield [jitney.End(answer=[len(text)]) for text in texts]

    link = run(predict, ["a", "bc"], {0})
    assert link.said[1] == [(0, "preview")]
    assert texts(link.outcomes[1]) == ["[1]", "[2]"], "a client that takes parts gets it with the end"


def test_parts_that_are_neither_text_nor_bytes_become_a_list() -> None:
    def predict(texts: list[str]) -> Iterator[list[jitney.Step[dict[str, int]]]]:
        for step in range(2):
            yield [{"step": step} for _ in texts]

    link = run(predict, ["a", "b"], {1})
    assert link.said[1] == [(1, b'{"step":0}'), (1, b'{"step":1}')]
    assert texts(link.outcomes[1]) == ['[{"step":0},{"step":1}]', None]


def test_arrays_are_parts_and_may_be_written_over_by_the_next_step() -> None:
    def predict(texts: list[str]) -> Iterator[list[np.ndarray]]:
        buffer = np.zeros(2, np.float32)
        for step in range(2):
            buffer[:] = step
            yield [buffer for _ in texts]

    link = run(predict, ["a", "b"], {0})
    assert link.said[1] == [(0, [0.0, 0.0]), (0, [1.0, 1.0])]
    assert texts(link.outcomes[1]) == [None, "[[0.0,0.0],[1.0,1.0]]"]


def test_an_exception_as_outcome_ends_its_item_alone() -> None:
    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        yield ["a" for _ in texts]
        yield [InvalidInput("no") if text == "bad" else "b" for text in texts]

    link = run(predict, ["x", "bad"], {0, 1})
    assert texts(link.outcomes[1]) == [None, "invalid_input"]
    assert link.said[1] == [(0, "a"), (1, "a"), (0, "b")]


def test_an_item_without_a_part_that_has_left_is_computed_anew_when_the_generator_raises() -> None:
    calls: list[list[str]] = []

    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        calls.append(texts)
        yield [text[0] for text in texts]
        if "bad" in texts:
            raise ValueError("no")
        yield [text[1:] for text in texts]

    link = run(predict, ["one", "two", "bad", "six"], {1})
    assert texts(link.outcomes[1]) == ["one", "model_failed", "model_failed", "six"]
    assert link.said[1] == [(1, "t")], "it had begun, and is not computed anew"
    assert calls[0] == ["one", "two", "bad", "six"]
    assert "two" not in [text for call in calls[1:] for text in call]


def test_a_generator_is_told_who_is_still_waited_for() -> None:
    batch = FakeBatch(1, ["a", "b"], takes_parts={0})
    heard: list[list[bool]] = []

    def predict(texts: list[str]) -> Generator[list[jitney.Step[str]], list[bool], None]:
        for number in range(3):
            heard.append((yield [f"{text}{number}" for text in texts]))
            batch.unwanted.add(1)

    link = answer(predict, batch)
    assert heard == [[True, True], [True, False], [True, False]]
    assert texts(link.outcomes[1]) == [None, "cancelled"]


def test_a_generator_without_an_item_that_is_waited_for_is_closed() -> None:
    batch = FakeBatch(1, ["a"], takes_parts={0})
    steps: list[int] = []

    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        try:
            for number in range(100):
                steps.append(number)
                yield [str(number) for _ in texts]
                batch.unwanted.add(0)
        finally:
            steps.append(-1)

    link = answer(predict, batch)
    assert steps == [0, 1, -1], "one more step at most"
    assert texts(link.outcomes[1]) == ["cancelled"]


@pytest.mark.parametrize(
    ("outcomes", "detail"),
    [
        (["a"], "predict yielded 1 outcomes for 2 items; expected one per item, in order"),
        ("ab", "predict yielded a str; expected a list of 2 outcomes, one per item, in order"),
        (None, "predict yielded a NoneType; expected a list of 2 outcomes, one per item, in order"),
    ],
)
def test_a_step_without_an_outcome_for_each_item_fails_them_all(outcomes: Any, detail: str) -> None:
    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        yield outcomes

    found = run(predict, ["a", "b"], {0}).outcomes[1]
    assert [outcome.reason for outcome in found] == ["invalid_output"] * 2
    assert found[0].detail == detail


def test_a_part_of_another_type_fails_its_item() -> None:
    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        yield [7 if text == "bad" else text for text in texts]  # pyright: ignore[reportReturnType]

    link = run(predict, ["a", "bad"], {0, 1})
    assert texts(link.outcomes[1]) == [None, "invalid_output"]
    assert texts(run(predict, ["bad"], set()).outcomes[1]) == ["invalid_output"], (
        "also for a client that takes no parts"
    )


def test_an_end_that_cannot_be_sent_fails_its_item_alone() -> None:
    odd: list[Any] = [jitney.End(7), jitney.End(answer=3)]
    calls: list[int] = []

    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        calls.append(len(texts))
        yield [*odd, jitney.End("good")]

    link = run(predict, ["x"] * 3, set())
    assert texts(link.outcomes[1]) == [*["invalid_output"] * 2, "good"]
    assert calls == [3]


def test_what_is_no_generator_fails_in_clear_words() -> None:
    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        return texts  # pyright: ignore[reportReturnType]

    found = run(predict, ["a"], {0}).outcomes[1]
    assert (found[0].reason, found[0].detail) == (
        "invalid_output",
        "predict is annotated as a generator, but it returned a list",
    )


def test_items_that_cannot_be_decoded_never_reach_the_generator() -> None:
    def predict(numbers: list[int]) -> Iterator[list[jitney.Step[str]]]:
        yield [str(number) for number in numbers]

    link = run(predict, [b"1", b"x", b"3"], {0, 1}, tag=TAG_JSON)
    assert texts(link.outcomes[1]) == [None, "malformed_body", "3"]


def test_retry_false_computes_nothing_anew() -> None:
    calls: list[int] = []

    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        calls.append(len(texts))
        yield [None for _ in texts]
        raise ValueError("no")

    link = run(predict, ["a", "b"], {0}, retry=False)
    assert texts(link.outcomes[1]) == ["model_failed"] * 2
    assert (calls, link.begun) == ([2], [1])


def test_warm_up_and_checks_see_whole_answers() -> None:
    options = DeploymentOptions()
    codec = Codec(read_signature(spell), options)
    assert whole(spell, codec, batched=True)(["ab", "c"]) == ["ab", "c"]
    codec = Codec(read_signature(spell_one, batched=False), options)
    assert whole(spell_one, codec, batched=False)("ab") == "ab!"

    def short(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        yield ["a" for _ in texts]
        yield []

    with pytest.raises(InvalidOutput, match="yielded 0 outcomes for 1 items"):
        whole(short, codec, batched=True)(["x"])


def test_an_answer_that_never_ends_ends_its_trial() -> None:
    closed: list[bool] = []
    part: Any = "ab"

    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        try:
            while True:
                yield [part if text else jitney.End() for text in texts]
        finally:
            closed.append(True)

    codec = Codec(read_signature(predict), DeploymentOptions())
    ticks = itertools.count()
    limits: list[tuple[dict[str, Any], str]] = [
        ({}, r"after 10,000 steps in .* s the answer has not ended: it has 10,000 parts, the last one is 'ab'"),
        ({"most_s": 5, "clock": lambda: next(ticks)}, "after 6 steps in 6.0 s the answer has not ended"),
        ({"most_bytes": 9}, "after 5 steps .* together 10 bytes; end it with jitney.End"),
    ]
    for given, says in limits:
        with pytest.raises(Endless, match=says):
            whole(predict, codec, batched=True, **given)(["x"])
    with pytest.raises(Endless, match="the answer to item 2 of 2 has not ended"):
        whole(predict, codec, batched=True)(["", "x"])

    def grow(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        while True:
            yield list(texts)

    with pytest.raises(Endless, match=r"after 2 steps .* the answer to item 2 of 3 has not ended"):
        whole(grow, Codec(read_signature(grow), DeploymentOptions()), batched=True, most_bytes=9)(["", "xxxxx", "x"])
    part = None
    with pytest.raises(Endless, match="has not ended: it has no part"):
        whole(predict, codec, batched=True)(["x"])
    assert closed == [True] * 5


def test_a_part_of_a_wrong_type_ends_a_trial_at_once() -> None:
    made: list[int] = []

    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        for number in range(3):
            made.append(number)
            yield [number if number and text == "x" else "a" for text in texts]  # pyright: ignore[reportReturnType]

    codec = Codec(read_signature(predict), DeploymentOptions())
    says = "the answer to item 2 of 2: predict is annotated to yield parts of type str, but one part is 1, of type int"
    with pytest.raises(InvalidOutput, match=says):
        whole(predict, codec, batched=True)(["y", "x"])
    assert made == [0, 1]


def test_a_part_of_a_wrong_type_ends_a_whole_answer_at_once() -> None:
    made: list[int] = []

    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        for number in range(3):
            made.append(number)
            yield [7 for _ in texts]  # pyright: ignore[reportReturnType]

    [outcome] = run(predict, ["a"], set()).outcomes[1]
    assert outcome.reason == "invalid_output"
    assert outcome.detail == "predict is annotated to yield parts of type str, but one part is 7, of type int"
    assert made == [0]


def test_parts_that_are_responses_are_one_response() -> None:
    def predict(texts: list[str]) -> Iterator[list[jitney.Step[jitney.Response]]]:
        yield [jitney.Response(b"RI", "audio/wav") for _ in texts]
        yield [jitney.Response("FF", "audio/wav") for _ in texts]

    codec = Codec(read_signature(predict), DeploymentOptions())
    assert whole(predict, codec, batched=True)(["x"]) == [jitney.Response(b"RIFF", "audio/wav")]


def test_whole_answers_end_where_a_worker_ends_them() -> None:
    heard: list[list[bool]] = []

    def predict(texts: list[str]) -> Generator[list[jitney.Step[str]], list[bool], None]:
        for number in range(100):
            heard.append((yield [jitney.End("a") if number >= len(text) else "b" for text in texts]))

    def silent(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        yield from ()

    def odd(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        yield 7  # pyright: ignore[reportReturnType]

    codec = Codec(read_signature(predict), DeploymentOptions())
    assert whole(predict, codec, batched=True)(["x", "xyz"]) == ["ba", "bbba"]
    assert heard == [[True, True], [False, True], [False, True]], "no step after the last end"
    assert whole(silent, codec, batched=True)(["x", "y"]) == ["", ""]
    with pytest.raises(InvalidOutput, match="yielded a int"):
        whole(odd, codec, batched=True)(["x"])


def test_the_first_part_of_an_answer_moves_its_deadline_so_the_worker_goes_on() -> None:
    batch = FakeBatch(1, ["a", "b", "c"], takes_parts={0, 2})

    def predict(texts: list[str]) -> Iterator[list[jitney.Step[str]]]:
        yield ["1", "1", None]
        batch.expired.update({0, 1, 2})
        yield ["2", "2", "2"]
        batch.unwanted.add(0)
        yield ["3", None, None]

    link = answer(predict, batch)
    assert link.said[1] == [(0, "1"), (0, "2"), (2, "2"), (0, "3")]
    assert texts(link.outcomes[1]) == ["cancelled", "cancelled", None]


@pytest.mark.parametrize("part", ["", b"", "1234", b"1234", {"step": 1}, np.zeros(4, np.uint8), [{"text": "1"}]])
def test_parts_that_wait_for_the_end_have_at_most_the_bytes_of_an_answer(part: Any) -> None:
    steps: list[int] = []

    def predict(texts: list[str]) -> Iterator[list[Any]]:
        for step in range(1000):
            steps.append(step)
            yield [part if text == "much" else jitney.End(answer="x") for text in texts]

    link = run(predict, ["much", "little"], set(), max_answer_bytes=100)
    assert texts(link.outcomes[1]) == ["invalid_output", "x"]
    assert "max_answer_bytes" in link.outcomes[1][0].detail
    assert len(steps) < 30, "no client gets what it says later"
