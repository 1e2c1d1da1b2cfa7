"""A `predict` that is `async def` and takes one item: items join while others run, and leave when they end."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import jitney
import pytest
from batches import LOOPS, make, tasks
from fake_link import FakeBatch, FakeLink
from jitney.context import enter, leave
from jitney.deployments.coroutines import Coroutines
from jitney.errors import WorkerBroken
from jitney.worker.health import FAILED_BATCHES, Health, IdleCheck


@pytest.fixture(autouse=True)
def no_loop_is_left() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    yield
    while LOOPS:
        LOOPS.pop().ending(None)()


class Front(FakeLink):
    """Sends what a test gives it while the loop runs."""

    def __init__(self, *batches: FakeBatch) -> None:
        super().__init__(batches)
        self.arrives_at_once = False
        self._news = threading.Condition()
        self._ends = False

    def give(self, *batches: FakeBatch) -> None:
        with self._news:
            self.batches.extend(batches)
            self._news.notify()

    def end(self) -> None:
        with self._news:
            self._ends = True
            self._news.notify()

    def next_batch(self, timeout_s: float | None = None) -> FakeBatch | None:
        with self._news:
            self._news.wait_for(lambda: self.batches or self._ends)
            return super().next_batch(timeout_s)

    def ended(self) -> list[tuple[int, int]]:
        return [one for frame in self.frames for one in frame]


def test_an_item_joins_while_another_runs_and_ends_before_it() -> None:
    front, running = Front(FakeBatch(1, ["long"])), list[str]()
    most = 0

    async def predict(item: str) -> str:
        nonlocal most
        running.append(item)
        most = max(most, len(running))
        if item == "long":
            for number in range(2, 6):
                front.give(FakeBatch(number, [f"short {number}"]))
                while (number, 0) not in front.ended():
                    await asyncio.sleep(0.001)
            front.end()
        running.remove(item)
        return item.upper()

    tasks(make(predict, front, batched=False), front).run()
    assert front.ended() == [(number, 0) for number in (2, 3, 4, 5, 1)]
    assert most == 2
    assert [outcomes[0].reason for outcomes in front.outcomes.values()] == ["ok"] * 5


def test_what_one_turn_of_the_event_loop_brought_is_one_frame() -> None:
    released = asyncio.Event()

    async def predict(item: str) -> str:
        if item == "last":
            released.set()
        await released.wait()
        return item

    front = Front(FakeBatch(1, ["a", "b"]), FakeBatch(2, ["c", "last"]))
    front.end()
    tasks(make(predict, front, batched=False), front).run()
    assert any({(1, 0), (1, 1), (2, 0)} <= set(frame) for frame in front.frames), front.frames


def test_a_cancelled_task_keeps_its_place_until_it_has_ended() -> None:
    batch, steps = FakeBatch(1, ["gone", "late", "other"]), list[str]()
    front = Front(batch)

    async def predict(item: str) -> str:
        if item == "other":
            batch.unwanted.add(0)
            batch.expired.add(1)
            while len(steps) < 4:
                await asyncio.sleep(0.001)
            front.end()
            return item
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            steps.append(f"cancelled {item}")
            raise
        finally:
            await asyncio.sleep(0.01)
            assert (1, {"gone": 0, "late": 1}[item]) not in front.ended()
            steps.append(f"ended {item}")
        return item

    tasks(make(predict, front, batched=False), front).run()
    assert sorted(steps) == ["cancelled gone", "cancelled late", "ended gone", "ended late"]
    assert [outcome.reason for outcome in front.outcomes[1]] == ["cancelled", "cancelled", "ok"]


class Clock:
    """Seconds pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_item_that_says_nothing_for_too_long_fails_alone(capsys: pytest.CaptureFixture[str]) -> None:
    front, clock = Front(FakeBatch(1, ["hang"])), Clock()

    async def predict(item: str) -> str:
        if item == "hang":
            clock.now = 2
            front.give(FakeBatch(2, ["other"]))
            await asyncio.Event().wait()
        clock.now = 3.5
        while (1, 0) not in front.ended():
            await asyncio.sleep(0.001)
        front.end()
        return item

    tasks(make(predict, front, batched=False), front, batch_timeout_s=3, clock=clock).run()
    [hung], [other] = front.outcomes[1], front.outcomes[2]
    assert (hung.reason, other.reason) == ("model_failed", "ok")
    assert hung.detail == "TimeoutError: neither a part nor the end for more than 3 s (batch_timeout_s)"
    assert "batch_timeout_s" in capsys.readouterr().err


class Looked(FakeBatch):
    """Counts how often the loop looks whether its items are wanted."""

    looks = 0

    def wanted(self) -> list[bool]:
        self.looks += 1
        return super().wanted()


def test_an_item_that_waits_for_what_it_asked_does_not_hang() -> None:
    batch, clock = Looked(1, ["asks"]), Clock()
    front = Front(batch)
    front.asking_items = list(batch.ids)

    async def predict(item: str) -> str:
        try:
            for _ in range(5):
                clock.now += 2
                seen = batch.looks
                while batch.looks == seen:
                    await asyncio.sleep(0.001)
            return item
        finally:
            front.end()

    tasks(make(predict, front, batched=False), front, batch_timeout_s=3, clock=clock).run()
    assert (clock.now, front.outcomes[1][0].reason) == (10, "ok")


def test_a_task_that_does_not_end_when_it_is_cancelled_breaks_the_worker() -> None:
    front, clock = Front(Stubborn(1, ["stubborn"])), Clock()

    async def predict(item: str) -> str:
        while True:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                clock.now += 100
                if clock.now > 1000:
                    raise

    with pytest.raises(WorkerBroken, match="was cancelled and has not ended for more than 3 s"):
        tasks(make(predict, front, batched=False), front, batch_timeout_s=3, clock=clock).run()
    clock.now = 1000


class Stubborn(FakeBatch):
    """It is wanted when it joins, and not any more a moment later."""

    asked = 0

    def wanted(self) -> list[bool]:
        self.asked += 1
        return [self.asked == 1] * len(self.items)


def test_frames_are_a_sign_of_life_while_items_run_and_only_then() -> None:
    front, clock = Front(FakeBatch(1, ["slow"])), Clock()

    async def predict(item: str) -> str:
        for seconds in (2, 4, 6):
            frames = len(front.frames)
            clock.now = seconds
            while len(front.frames) == frames:
                await asyncio.sleep(0.001)
        front.end()
        return item

    tasks(make(predict, front, batched=False), front, clock=clock).run()
    assert [len(frame) for frame in front.frames] == [0, 0, 0, 1], "three signs of life, its end"


def test_items_that_fail_in_a_row_replace_a_worker_that_was_never_seen_to_answer() -> None:
    async def predict(item: str) -> str:
        raise ValueError(item)

    front = Front(*[FakeBatch(number, ["a"]) for number in range(FAILED_BATCHES)])
    with pytest.raises(WorkerBroken, match="8 batches in a row"):
        tasks(make(predict, front, batched=False), front).run()
    assert len(front.ended()) == FAILED_BATCHES, "each of them was answered before"


def test_a_worker_that_is_replaced_names_the_method_that_failed() -> None:
    async def shout(item: str) -> str:
        raise ValueError(item)

    front = Front(*[FakeBatch(number, ["a"], method="shout") for number in range(FAILED_BATCHES)])
    with pytest.raises(WorkerBroken, match="shout failed for 8 batches in a row"):
        tasks(make(shout, front, method="shout", batched=False), front).run()


def test_a_failed_item_does_not_stop_the_event_loop_unless_the_model_is_to_be_tested() -> None:
    front, ran = Front(FakeBatch(1, ["runs on"])), 0

    async def predict(item: str) -> str:
        if item == "bad":
            raise ValueError(item)
        for number in (2, 3, 4):
            front.give(FakeBatch(number, ["bad"]))
            while (number, 0) not in front.ended():
                await asyncio.sleep(0.001)
        front.end()
        return item

    class Counted(Coroutines):
        def run(self, coroutine: Any) -> Any:
            nonlocal ran
            ran += 1
            return super().run(coroutine)

    replica = make(predict, front, batched=False)
    LOOPS[-1].__class__ = Counted
    tasks(replica, front).run()
    assert [outcomes[0].reason for outcomes in front.outcomes.values()] == [*["model_failed"] * 3, "ok"]
    assert ran <= 2, "until the front says that no more items come, and until the last one ends"


@pytest.mark.parametrize("works", [True, False])
def test_a_model_that_fails_is_tested_with_an_item_that_it_answered_while_the_others_run(works: bool) -> None:
    front, calls, health = Front(FakeBatch(1, ["good"]), FakeBatch(2, ["runs on"])), list[str](), Health()
    is_broken = False

    async def predict(item: str) -> str:
        nonlocal is_broken
        calls.append(item)
        await asyncio.sleep(0)
        if item == "bad" or is_broken:
            is_broken = not works
            raise ValueError(item)
        if item == "runs on":
            while (1, 0) not in front.ended():
                await asyncio.sleep(0.001)
            for number in (3, 4):
                front.give(FakeBatch(number, ["bad"]))
                while (number, 0) not in front.ended():
                    await asyncio.sleep(0.001)
            while calls[-1] != "good":
                await asyncio.sleep(0.001)
            front.end()
        return item

    replica = make(predict, front, batched=False)
    replica._health = health  # pyright: ignore[reportPrivateUsage]
    loop = tasks(replica, front, health=health)
    if works:
        loop.run()
        assert front.outcomes[2][0].reason == "ok"
    else:
        with pytest.raises(WorkerBroken, match="fails for an input that it answered before"):
            loop.run()
    assert calls == ["good", "runs on", "bad", "bad", "good"]


def test_the_models_own_check_runs_while_no_item_does() -> None:
    front, said, clock = Front(), list[str](), Clock()
    held = 0

    async def predict(item: str) -> str:
        nonlocal held
        held += 1
        clock.now += 20
        await asyncio.sleep(0.05)
        held -= 1
        said.append(item)
        return item

    def check() -> None:
        assert held == 0
        said.append("check")
        if said.count("check") == 1:
            front.give(FakeBatch(1, ["a"]))
        elif said[-2:] == ["a", "check"]:
            front.end()

    tasks(make(predict, front, batched=False), front, check=IdleCheck(check, 0.01)).run()
    assert said[-3:] == ["check", "a", "check"]


def test_a_task_of_the_models_own_that_ends_python_fails_no_item(capsys: pytest.CaptureFixture[str]) -> None:
    async def leave_python() -> None:
        raise SystemExit(3)

    own: list[Any] = []

    async def predict(item: str) -> str:
        own.append(asyncio.get_running_loop().create_task(leave_python()))
        await asyncio.sleep(0.01)
        return item

    front = Front(FakeBatch(1, ["a"]))
    front.end()
    tasks(make(predict, front, batched=False), front).run()
    assert front.outcomes[1][0].reason == "ok"
    assert "SystemExit" in capsys.readouterr().err


def test_without_retry_the_front_hears_that_items_have_started() -> None:
    async def predict(item: str) -> str:
        return item

    for retry in (True, False):
        front = Front(FakeBatch(1, ["a"]), FakeBatch(2, ["b"]))
        front.end()
        tasks(make(predict, front, batched=False, retry=retry), front).run()
        assert front.begun == ([] if retry else [1, 2])


def test_a_thousand_items_come_and_go_each_with_its_own_answer() -> None:
    held = most = given = 0

    def more() -> None:
        nonlocal given
        given += 1
        front.give(FakeBatch(given, [str(given)])) if given <= 1000 else front.end()

    async def predict(item: str) -> str:
        nonlocal held, most
        held += 1
        most = max(most, held)
        assert len(jitney.context().ids) == 1
        await asyncio.sleep(int(item) % 7 / 1000)
        held -= 1
        return item

    class Refilling(Front):
        """A place that becomes free is given away, as the real front does."""

        def send_step(self, batches: Any, active: int, joined: int, step_s: float, join_s: float) -> None:
            before = len(self.ended())
            super().send_step(batches, active, joined, step_s, join_s)
            for _ in range(len(self.ended()) - before):
                more()

    front = Refilling()
    for _ in range(8):
        more()
    enter("d", 0, None)
    try:
        tasks(make(predict, front, batched=False), front).run()
    finally:
        leave()
    assert (most, len(front.outcomes), front.joined) == (8, 1000, 1000)
    assert all(outcome.value[1].decode() == str(number) for number, [outcome] in front.outcomes.items())
