"""Metrics that models declare and count."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import jitney
import pytest
from jitney import measures
from jitney.errors import ConfigError
from jitney.measures import Measuring


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(measures, "_measures", {})
    yield


def taken() -> list[dict[str, Any]]:
    return json.loads(measures.take() or b"[]")


def test_what_was_added_is_taken_once() -> None:
    words = jitney.counter("words_total", "Words.", language=("en", "de"))
    words.inc(2, language="en")
    words.inc(language="en")
    words.inc(0.5, language="de")
    (found,) = taken()
    assert found["labels"] == ["language"]
    assert {tuple(series["labels"]): series["value"] for series in found["series"]} == {("en",): 3.0, ("de",): 0.5}
    assert measures.take() is None


def test_a_value_counts_in_the_first_bucket_that_holds_it() -> None:
    score = jitney.histogram("score", "Scores.", buckets=(1, 2))
    for value in (0.5, 1, 1.5, 2, 3, 0):
        score.observe(value)
    (found,) = taken()
    assert (found["buckets"], found["series"]) == ([1.0, 2.0], [{"labels": [], "value": 8.0, "counts": [3, 2, 1]}])


def test_threads_lose_nothing() -> None:
    total = jitney.counter("all_total", "All.")
    threads = [threading.Thread(target=lambda: [total.inc() for _ in range(1000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    counted = 0.0
    while any(thread.is_alive() for thread in threads):
        counted += sum(series["value"] for one in taken() for series in one["series"])
    counted += sum(series["value"] for one in taken() for series in one["series"])
    assert counted == 8000


def test_the_same_declaration_is_the_same_metric_and_another_one_is_refused() -> None:
    first = jitney.counter("a_total", "A.", kind=("x", "y"))
    assert jitney.counter("a_total", "A.", kind=("x", "y")) is first
    with pytest.raises(ConfigError, match="declared twice"):
        jitney.counter("a_total", "A.", kind=("x", "z"))
    with pytest.raises(ConfigError, match="declared twice"):
        jitney.counter("a_total", "Another.", kind=("x", "y"))


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda: jitney.counter("words", "W."), "ends in _total"),
        (lambda: jitney.counter("_total", "W."), "ends in _total"),
        (lambda: jitney.counter("a_total", "\ud800"), "UTF-8"),
        (lambda: jitney.counter("a_total", "W.", kind=("\ud800",)), "UTF-8"),
        (lambda: (jitney.counter("twin_total", "W."), jitney.histogram("twin", "W.")), "without _total"),
        (lambda: jitney.histogram("h_sum", "H."), "cannot end in"),
        (lambda: jitney.histogram("h", "H.", buckets=(-1, 0, 1)), "from 0 on"),
        (lambda: jitney.counter("jitney_x_total", "W."), "does not begin with"),
        (lambda: jitney.counter("a b_total", "W."), "letters, digits"),
        (lambda: jitney.counter("a_total", "W.", deployment=("a",)), "is taken"),
        (lambda: jitney.counter("a_total", "W.", kind="abc"), "needs the values"),
        (lambda: jitney.counter("a_total", "W.", kind=()), "needs the values"),
        (lambda: jitney.counter("a_total", "W.", a=list("0123456789"), b=list("abcdefghijk")), "110 series"),
        (lambda: jitney.histogram("h", "H.", buckets=(2, 1)), "ascending"),
        (lambda: jitney.histogram("h", "H.", buckets=()), "ascending"),
        (lambda: jitney.histogram("h", "H.", buckets=(1, float("inf"))), "finite"),
    ],
)
def test_a_declaration_that_cannot_be_says_why(declare: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        declare()


@pytest.mark.parametrize("given", [{}, {"kind": "z"}, {"kind": "x", "more": "y"}])
def test_labels_that_were_not_declared_are_refused(given: dict[str, Any]) -> None:
    counter = jitney.counter("a_total", "A.", kind=("x", "y"))
    with pytest.raises(ValueError, match="a_total"):
        counter.inc(**given)
    assert measures.take() is None


@pytest.mark.parametrize("amount", [-1, float("nan"), float("inf")])
def test_a_counter_only_grows(amount: float) -> None:
    with pytest.raises(ValueError, match="only grows"):
        jitney.counter("a_total", "A.").inc(amount)


def test_a_sum_stays_a_number() -> None:
    counter, histogram = jitney.counter("a_total", "A."), jitney.histogram("h", "H.")
    for add in (counter.inc, histogram.observe):
        add(1e308)
        with pytest.raises(ValueError, match="larger than a number"):
            add(1e308)
    assert [series["value"] for one in taken() for series in one["series"]] == [1e308, 1e308]
    with pytest.raises(ValueError, match="from 0 on"):
        histogram.observe(-0.5)


def test_a_worker_sends_what_is_left_at_its_end_and_a_lost_link_is_no_error() -> None:
    sent: list[bytes] = []

    def send(body: bytes) -> None:
        sent.append(body)
        if len(sent) > 1:
            raise ConnectionError("lost")

    counter = jitney.counter("a_total", "A.")
    measuring = Measuring(send)
    counter.inc()  # in the warm-up
    measuring.start()
    measuring.end()
    assert sent == []
    counter.inc()
    measuring.end()
    counter.inc()
    measuring.end()
    assert len(sent) == 2
