"""A model that is down is distinguished from inputs that it cannot compute, and is not called for nothing."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from fake_link import AlwaysOverlapped, FakeBatch, FakeLink, FakeResults, Outcome
from jitney.codecs import Codec
from jitney.config.layers import DeploymentOptions
from jitney.errors import InvalidInput, OutOfMemory, Unavailable, WorkerBroken
from jitney.signature.annotations import read_signature
from jitney.worker.health import FAILED_BATCHES, Health, is_permanent
from jitney.worker.pipeline import Loop
from jitney.worker.replica import Replica
from jitney.worker.splitting import extra_calls, predict_split

ASSERT = (
    "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at some other API "
    "call, so the stacktrace below might be incorrect."
)


class Model:
    """Shouts, until it is down."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.calls: list[list[str]] = []

    def predict(self, texts: list[str]) -> list[str]:
        self.calls.append(list(texts))
        if self.error is not None:
            raise self.error
        if "bad" in texts:
            raise ValueError("a bad one")
        return [text.upper() for text in texts]


class Down(Model):
    """Fails on every call after an item "break"."""

    def predict(self, texts: list[str]) -> list[str]:
        if "break" in texts:
            self.error = RuntimeError("the model is in pieces")
        return super().predict(texts)


def serve(
    model: Model,
    *batches: Sequence[str],
    test: Callable[[], object] | None = None,
    overlapped: bool = False,
    **options: Any,
) -> tuple[FakeLink, WorkerBroken | None]:
    """Run batches through the loop until the end or until the worker is broken."""
    link = FakeLink([FakeBatch(number, list(items)) for number, items in enumerate(batches)])
    options.setdefault("max_batch_size", 64)
    in_force = DeploymentOptions(**options)
    health = Health()
    health.test = test
    codec = Codec(read_signature(model.predict, batched=in_force.batched), in_force)
    replica = Replica(cast("Any", link), model.predict, codec, in_force, cast("Any", FakeResults), health=health)
    gauge = AlwaysOverlapped() if overlapped else None
    try:
        Loop(cast("Any", link), replica, gauge, crash=lambda: pytest.fail("it crashed")).run()
    except WorkerBroken as error:
        return link, error
    return link, None


def failed(outcomes: list[Outcome]) -> bool:
    return {outcome.reason for outcome in outcomes} == {"model_failed"}


@pytest.mark.parametrize(
    "text",
    [
        ASSERT,
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: unspecified launch failure",
        "CUDA failure 700: an illegal memory access was encountered ; GPU=0",
        "cudaErrorIllegalAddress: an illegal memory access was encountered",
        "INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
        "HIP error: unspecified launch failure",
    ],
)
def test_errors_that_no_later_call_survives_are_known(text: str) -> None:
    assert is_permanent(RuntimeError(text))
    assert not is_permanent(ValueError(text)), "a model may quote it"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: invalid argument"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        KeyboardInterrupt(),
    ],
)
def test_errors_of_one_call_are_not_permanent(error: BaseException) -> None:
    assert not is_permanent(error)


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("error", [RuntimeError(ASSERT), WorkerBroken("the licence server does not answer")])
def test_a_broken_worker_says_so_at_once_and_answers_nothing_more(error: Exception, overlapped: bool) -> None:
    class Late(Model):
        def predict(self, texts: list[str]) -> list[str]:
            self.error = error if "break" in texts else self.error
            return super().predict(texts)

    model = Late()
    link, raised = serve(model, ["a"], ["b", "break", "c"], ["d"], overlapped=overlapped)
    assert raised is not None and str(error).partition("\n")[0] in str(raised)
    assert link.finished == [0], "what was computed before is answered, the batch that broke it is not"
    assert model.calls == [["a"], ["b", "break", "c"]], "no call on parts of the batch"


@pytest.mark.parametrize("options", [{}, {"batched": False}])
def test_a_model_that_fails_for_an_input_that_it_answered_is_broken(options: dict[str, Any]) -> None:
    class One(Down):
        def predict(self, text: str) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().predict([text])[0]

    model = Down() if not options else One()
    link, raised = serve(model, ["good"], ["break"], ["x"], ["y"], **options)
    assert "fails for an input that it answered before: RuntimeError: the model is in pieces" in str(raised)
    assert link.finished == [0, 1]
    assert model.calls[-1] == ["good"]


def test_a_model_that_fails_for_its_example_is_broken() -> None:
    model = Down()
    link, raised = serve(model, ["break", "a"], ["b", "c"], ["d"], test=lambda: model.predict(["example"]))
    assert raised is not None
    assert link.finished == [0]


def test_inputs_that_fail_break_nobody_and_cost_few_tests() -> None:
    model = Model()
    tests = 0

    def test() -> None:
        nonlocal tests
        tests += 1

    link, raised = serve(model, *[["bad"]] * 100, test=test)
    assert raised is None and tests == 6, "after 2, 4, 8, 16, 32 and 64 batches"
    assert all(failed(outcomes) for outcomes in link.outcomes.values())
    assert serve(model, *[["bad"], ["good"]] * 50)[1] is None


def test_without_any_input_to_test_with_a_number_of_failed_batches_is_enough() -> None:
    model = Down()
    link, raised = serve(model, ["break", "a"], *[["b", "c"]] * 20)
    assert f"predict failed for {FAILED_BATCHES} batches in a row" in str(raised)
    assert len(link.finished) == FAILED_BATCHES - 1


@pytest.mark.parametrize("error", [InvalidInput("no"), Unavailable("not now"), OutOfMemory("too much"), MemoryError()])
def test_what_says_nothing_of_the_model_breaks_nobody(error: Exception) -> None:
    model = Model()
    model.error = error
    assert serve(model, *[["a"]] * 30)[1] is None


def test_a_model_that_is_down_is_searched_once_and_then_the_worker_is_replaced() -> None:
    model = Down()
    items = [str(n) for n in range(32)]

    def test() -> None:
        raise ValueError("the model is down")

    link, raised = serve(model, ["break", *items], items, items, test=test)
    assert isinstance(raised, WorkerBroken)
    assert [len(call) for call in model.calls][-1] == 32, "the second batch is not searched"
    assert len(model.calls) == 1 + 1 + extra_calls(33)
    assert len(link.finished) == 1


def test_a_batch_of_bad_items_after_another_does_not_take_good_ones_along() -> None:
    def predict(positions: Sequence[int]) -> object:
        if any(position != 2 for position in positions):
            raise ValueError("no")
        return None

    health = Health()
    health.test = lambda: None
    for _ in range(3):
        split = predict_split(predict, range(4), retry=True, is_down=health.is_down)
        assert split.failures.keys() == {0, 1, 3}
        health.failed(split.failures[0].error, 4)


def test_nothing_is_searched_while_the_model_is_down() -> None:
    calls = 0

    def predict(_: Sequence[int]) -> object:
        nonlocal calls
        calls += 1
        raise ValueError("no")

    split = predict_split(predict, range(32), retry=True, is_down=lambda _: True)
    assert calls == 1 and len(split.failures) == 32
    assert not any(failure.alone for failure in split.failures.values())
