"""Bisection answers every item that works, fails no item without a call that shows it, and stays within its calls."""

from collections.abc import Callable, Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jitney.worker.splitting import Split, extra_calls, predict_split


class Model:
    """Raises when a failing position is in its batch."""

    def __init__(self, guilty: set[int], error: Callable[[], BaseException] = lambda: ValueError("no")) -> None:
        self.guilty = guilty
        self.error = error
        self.calls: list[list[int]] = []

    def __call__(self, positions: Sequence[int]) -> object:
        self.calls.append(list(positions))
        if self.guilty.intersection(positions):
            raise self.error()
        return [f"answer {position}" for position in positions]


def answered(split: Split) -> dict[int, object]:
    found: dict[int, object] = {}
    for part in split.parts:
        answers = cast("list[str]", part.output)
        for position, answer in zip(part.positions, answers, strict=True):
            assert position not in found
            found[position] = answer
    return found


def run(n: int, guilty: set[int]) -> tuple[Model, Split]:
    model = Model(guilty)
    split = predict_split(model, range(n), retry=True)
    own = answered(split)
    assert not own.keys() & split.failures.keys()
    assert own.keys() | split.failures.keys() == set(range(n))
    assert all(answer == f"answer {position}" for position, answer in own.items())
    assert not own.keys() & guilty
    return model, split


@pytest.mark.parametrize("n", range(1, 65))
def test_one_guilty_item_fails_alone_wherever_it_stands(n: int) -> None:
    for guilty in range(n):
        model, split = run(n, {guilty})
        assert split.failures.keys() == {guilty}
        assert split.failures[guilty].alone
        assert len(model.calls) - 1 <= 2 * (n - 1).bit_length()


def test_one_guilty_of_64_costs_at_most_12_extra_calls() -> None:
    assert max(len(run(64, {guilty})[0].calls) - 1 for guilty in range(64)) <= 12


@given(st.integers(2, 64), st.data())
def test_two_guilty_items_are_always_found(n: int, data: st.DataObject) -> None:
    guilty = data.draw(st.sets(st.integers(0, n - 1), min_size=2, max_size=2))
    _, split = run(n, guilty)
    assert split.failures.keys() == guilty


@settings(max_examples=300)
@given(st.integers(1, 64), st.data())
def test_any_number_of_guilty_items_stays_within_the_calls(n: int, data: st.DataObject) -> None:
    guilty = data.draw(st.sets(st.integers(0, n - 1)))
    model, split = run(n, guilty)
    assert len(model.calls) - 1 <= extra_calls(n)
    assert guilty <= split.failures.keys()
    for position, failure in split.failures.items():
        assert failure.alone == ([position] in model.calls)
        assert not failure.alone or position in guilty


def test_an_innocent_batch_costs_one_call() -> None:
    assert run(64, set())[0].calls == [list(range(64))]


def test_without_retry_the_batch_fails_as_one() -> None:
    model = Model({3})
    split = predict_split(model, range(8), retry=False)
    assert len(model.calls) == 1
    assert split.failures.keys() == set(range(8))
    assert not any(failure.alone for failure in split.failures.values())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError])
def test_whatever_predict_raises_is_its_failure(error: type[BaseException]) -> None:
    split = predict_split(Model({0}, error), [0, 1], retry=True)
    assert isinstance(split.failures[0].error, error)
    assert answered(split) == {1: "answer 1"}


def test_a_failure_that_does_not_repeat_convicts_nobody() -> None:
    class Flaky(Model):
        def __call__(self, positions: Sequence[int]) -> object:
            self.guilty = {0} if not self.calls else set[int]()
            return super().__call__(positions)

    split = predict_split(Flaky(set()), range(8), retry=True)
    assert not split.failures
    assert answered(split).keys() == set(range(8))
