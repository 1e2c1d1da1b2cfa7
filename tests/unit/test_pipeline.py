"""The loop answers every batch in order, overlaps only where that pays, and always comes to its end."""

import threading
from collections import deque
from time import sleep
from typing import Any, cast

import pytest
from fake_link import AlwaysOverlapped
from jitney.pipeline import Gauge, run
from jitney.replica import Trip


class Batches:
    def __init__(self, count: int) -> None:
        self.left = deque(range(count))

    def next_batch(self) -> object | None:
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

    def decode(self, batch: Any) -> Trip:
        return Trip(batch, [1], decode_s=self.decode_s)

    def predict(self, trip: Trip, *, overlapped: bool) -> None:
        self.predict_threads.add(threading.get_ident())
        self.predicted.append((trip.batch, overlapped))
        trip.predict_s = self.overlapped_predict_s if overlapped else self.predict_s

    def finish(self, trip: Trip) -> None:
        self.finished.append(trip.batch)

    @property
    def overlapped(self) -> int:
        return sum(overlapped for _, overlapped in self.predicted)


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
        gauge.note(Trip(None, [1], decode_s=1e-3, predict_s=5e-3), wait_s=1.0)  # pyright: ignore[reportArgumentType]
    assert not gauge.is_overlapped


@pytest.mark.parametrize("overlapped", [False, True])
def test_batches_of_users_who_wait_for_their_answers_are_not_overlapped(overlapped: bool) -> None:
    gauge = Gauge()
    gauge.is_overlapped = overlapped
    # Answers out, the next requests in: nothing is there to be decoded meanwhile.
    trip = Trip(None, [1], decode_s=1e-4, predict_s=11e-3, encode_s=1e-4)  # pyright: ignore[reportArgumentType]
    for _ in range(100):
        gauge.note(trip, wait_s=1.4e-3)
    assert not gauge.is_overlapped


def test_a_stall_of_the_machine_does_not_start_threads() -> None:
    gauge = Gauge()
    for number in range(500):
        stalled = number % 50 == 0
        trip = Trip(None, [1], decode_s=1e-5, predict_s=0.5 if stalled else 1e-5)  # pyright: ignore[reportArgumentType]
        gauge.note(trip, wait_s=0.0)
        assert not gauge.is_overlapped


def test_overlap_ends_when_the_load_does() -> None:
    gauge = Gauge()
    trip = Trip(None, [1], decode_s=1e-3, predict_s=5e-3)  # pyright: ignore[reportArgumentType]
    for _ in range(100):
        gauge.note(trip, wait_s=0.0)
    assert gauge.is_overlapped
    for _ in range(30):
        gauge.note(trip, wait_s=1.0)
    assert not gauge.is_overlapped


@pytest.mark.parametrize("step", ["decode", "finish"])
def test_a_step_that_raises_on_its_thread_ends_the_worker(
    step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = Steps(decode_s=1e-3, predict_s=5e-3)
    gauge = AlwaysOverlapped()
    crashed = threading.Event()

    def broken(_: object) -> Any:
        raise RuntimeError("broken step")

    monkeypatch.setattr(steps, step, broken)

    def loop() -> None:
        run(Batches(3), steps, gauge, crash=crashed.set)

    threading.Thread(target=loop, daemon=True).start()
    assert crashed.wait(5)
    assert "broken step" in capsys.readouterr().err


def test_steps_really_run_beside_predict() -> None:
    """Batch 1 is decoded and batch 0 finished while predict runs, else this would wait for ever."""

    class Interlocked(Steps):
        def __init__(self) -> None:
            super().__init__()
            self.decoded: list[threading.Event] = [threading.Event() for _ in range(3)]

        def decode(self, batch: Any) -> Trip:
            self.decoded[int(batch)].set()
            return super().decode(batch)

        def predict(self, trip: Trip, *, overlapped: bool) -> None:
            number = int(cast("Any", trip.batch))
            if number + 1 < 3:
                assert self.decoded[number + 1].wait(5)
            while number >= 1 and number - 1 not in self.finished:
                sleep(0.001)
            super().predict(trip, overlapped=overlapped)

    steps = Interlocked()
    gauge = AlwaysOverlapped()
    run(Batches(3), steps, gauge)
    check(steps, 3)
