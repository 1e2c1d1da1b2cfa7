"""The loop answers every batch in order, overlaps only where that pays, and always comes to its end."""

import threading
from collections import deque
from time import sleep
from typing import Any, cast

import pytest
from fake_link import AlwaysOverlapped
from jitney.worker.gauge import Gauge
from jitney.worker.pipeline import Loop
from jitney.worker.replica import BatchState


class Batches:
    def __init__(self, count: int) -> None:
        self.left = deque(range(count))

    def next_batch(self, timeout_s: float | None = None) -> object | None:
        return self.left.popleft() if self.left else None


class Steps:
    """Notes which step ran on which thread; durations are claimed, not slept."""

    def __init__(
        self, decode_s: float = 0.0, predict_s: float = 0.0, overlapped_predict_s: float | None = None
    ) -> None:
        self.decode_s = decode_s
        self.predict_s = predict_s
        self.overlapped_predict_s = predict_s if overlapped_predict_s is None else overlapped_predict_s
        self.predicted: list[tuple[Any, bool]] = []
        self.finished: list[Any] = []
        self.predict_threads: set[int] = set()
        self.decode_threads: set[int] = set()
        self.decode_runs_user_code = False

    def decode(self, batch: Any) -> BatchState:
        self.decode_threads.add(threading.get_ident())
        return BatchState(batch, [1], decode_s=self.decode_s, is_clean=True)

    def predict(self, state: BatchState, *, overlapped: bool) -> None:
        self.predict_threads.add(threading.get_ident())
        self.predicted.append((state.batch, overlapped))
        state.predict_s = self.overlapped_predict_s if overlapped else self.predict_s

    def finish(self, state: BatchState) -> None:
        self.finished.append(state.batch)

    @property
    def overlapped(self) -> int:
        return sum(overlapped for _, overlapped in self.predicted)


def run(batches: Batches, steps: Steps, gauge: Gauge | None = None) -> None:
    """Serve batches that all wait already, with a stopped clock: only claimed durations count."""
    Loop(batches, steps, gauge, crash=lambda: pytest.fail("it crashed"), clock=lambda: 0.0).run()


def finished(**durations: float) -> BatchState:
    return BatchState(None, [1], is_clean=True, **durations)  # pyright: ignore[reportArgumentType]


def check(steps: Steps, count: int) -> None:
    assert steps.finished == list(range(count))
    assert [batch for batch, _ in steps.predicted] == list(range(count))
    assert steps.predict_threads == {threading.get_ident()}


def test_a_model_that_takes_no_time_stays_on_one_thread() -> None:
    steps = Steps(decode_s=1e-4, predict_s=1e-5)
    run(Batches(300), steps)
    check(steps, 300)
    assert steps.overlapped == 0


def test_nothing_is_overlapped_when_there_is_nothing_to_hide() -> None:
    steps = Steps(decode_s=1e-6, predict_s=10e-3)
    run(Batches(300), steps)
    check(steps, 300)
    assert steps.overlapped == 0


def test_a_slow_model_with_costly_decoding_is_overlapped() -> None:
    steps = Steps(decode_s=1e-3, predict_s=5e-3)
    run(Batches(300), steps)
    check(steps, 300)
    assert steps.overlapped > 250


def test_overlap_that_slows_predict_down_by_more_than_it_hides_is_given_up() -> None:
    steps = Steps(decode_s=1e-3, predict_s=5e-3, overlapped_predict_s=7e-3)
    run(Batches(400), steps)
    check(steps, 400)
    assert 0 < steps.overlapped < 150


def test_a_load_with_long_silences_is_not_overlapped() -> None:
    gauge = Gauge()
    for _ in range(100):
        gauge.note_serial(finished(decode_s=1e-3, predict_s=5e-3), wait_s=1.0)
    assert not gauge.is_overlapped


def test_batches_of_users_who_wait_for_their_answers_are_not_overlapped() -> None:
    # Answers are sent, then the next requests arrive: there is nothing to decode meanwhile.
    state = finished(decode_s=1e-4, predict_s=11e-3, encode_s=1e-4)
    gauge = Gauge()
    for _ in range(100):
        gauge.note_serial(state, wait_s=1.4e-3)
    assert not gauge.is_overlapped
    gauge.is_overlapped = True
    for _ in range(100):
        gauge.note_overlapped(state, wait_s=1.4e-3)
    assert not gauge.is_overlapped


def test_a_stall_of_the_machine_does_not_start_threads() -> None:
    gauge = Gauge()
    for number in range(500):
        stalled = number % 50 == 0
        gauge.note_serial(finished(decode_s=1e-5, predict_s=0.5 if stalled else 1e-5), wait_s=0.0)
        assert not gauge.is_overlapped


def overlapping() -> Gauge:
    gauge = Gauge()
    for _ in range(100):
        gauge.note_serial(finished(decode_s=1e-3, predict_s=5e-3), wait_s=0.0)
        if gauge.is_overlapped:
            return gauge
    raise AssertionError("it was not switched on")


def test_overlap_ends_when_the_load_does() -> None:
    gauge = overlapping()
    for _ in range(30):
        gauge.note_overlapped(finished(decode_s=1e-3, predict_s=5e-3), wait_s=1.0)
    assert not gauge.is_overlapped


def test_a_batch_that_was_searched_for_a_failing_item_teaches_nothing() -> None:
    """Its many calls take many times as long as a batch does: next to that, overlapping would seem to gain."""
    searched = BatchState(None, [1], decode_s=1e-3, predict_s=1.0)  # pyright: ignore[reportArgumentType]
    gauge = overlapping()
    gauge.is_overlapped = False
    for _ in range(5):
        gauge.note_serial(searched, wait_s=0.0)
    gauge.is_overlapped = True
    for _ in range(40):
        gauge.note_overlapped(finished(decode_s=1e-3, predict_s=7e-3), wait_s=0.0)
    assert not gauge.is_overlapped, "7 ms compared with 6 ms of a whole batch gains nothing"


def test_answers_that_are_still_being_encoded_teach_nothing() -> None:
    """After the switch to one thread, batches of the time before are still finished on another."""
    gauge = overlapping()
    for _ in range(40):
        gauge.note_overlapped(finished(decode_s=1e-3, predict_s=7e-3), wait_s=0.0)
    assert not gauge.is_overlapped
    for _ in range(100):
        gauge.note_overlapped(finished(decode_s=1e-3, predict_s=5e-3), wait_s=0.0)
    assert not gauge.is_overlapped


def test_user_code_is_called_on_the_main_thread_while_encoding_overlaps() -> None:
    steps = Steps(decode_s=1e-3, predict_s=5e-3)
    steps.decode_runs_user_code = True
    run(Batches(20), steps, AlwaysOverlapped())
    check(steps, 20)
    assert steps.overlapped == 20
    assert steps.decode_threads == {threading.get_ident()}


def test_what_cannot_be_hidden_is_no_gain() -> None:
    steps = Steps(decode_s=1e-3, predict_s=5e-3)  # nothing to encode
    steps.decode_runs_user_code = True
    run(Batches(300), steps)
    check(steps, 300)
    assert steps.overlapped == 0


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("step", ["decode", "predict", "finish"])
def test_a_step_that_raises_ends_the_worker_on_whichever_thread(
    step: str, overlapped: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = Steps(decode_s=1e-3, predict_s=5e-3)
    crashed = threading.Event()

    def broken(*_: object, **__: object) -> Any:
        raise RuntimeError("broken step")

    monkeypatch.setattr(steps, step, broken)
    loop = Loop(Batches(3), steps, AlwaysOverlapped() if overlapped else Gauge(), crash=crashed.set)
    threading.Thread(target=loop.run, daemon=True).start()
    assert crashed.wait(5)
    assert "broken step" in capsys.readouterr().err


def test_steps_really_run_beside_predict() -> None:
    """Batch 1 is decoded and batch 0 finished while predict runs, otherwise this would wait without end."""

    class Interlocked(Steps):
        def __init__(self) -> None:
            super().__init__()
            self.decoded: list[threading.Event] = [threading.Event() for _ in range(3)]

        def decode(self, batch: Any) -> BatchState:
            self.decoded[int(batch)].set()
            return super().decode(batch)

        def predict(self, state: BatchState, *, overlapped: bool) -> None:
            number = int(cast("Any", state.batch))
            if number + 1 < 3:
                assert self.decoded[number + 1].wait(5)
            while number >= 1 and number - 1 not in self.finished:
                sleep(0.001)
            super().predict(state, overlapped=overlapped)

    steps = Interlocked()
    run(Batches(3), steps, AlwaysOverlapped())
    check(steps, 3)
