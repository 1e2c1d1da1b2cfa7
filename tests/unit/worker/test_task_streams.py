"""A `predict` that is an asynchronous generator: parts of items that run side by side, and whole answers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import jitney
import numpy as np
import pytest
from batches import LOOPS, make, tasks
from fake_link import FakeBatch, FakeLink
from jitney.context import enter, leave
from jitney.errors import InvalidInput, WorkerBroken
from test_task_loop import Clock, Front


@pytest.fixture(autouse=True)
def no_loop_is_left() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    yield
    while LOOPS:
        LOOPS.pop().ending(None)()


def streamed(*items: str) -> FakeBatch:
    return FakeBatch(1, list(items), takes_parts=set(range(len(items))))


async def spell(text: str) -> AsyncIterator[jitney.Step[str]]:
    """Say a letter at a time. `-` says nothing, `?` is refused, `!` fails, `.` is the end, `x` says an exception."""
    for letter in text:
        if letter == "?":
            raise InvalidInput("no questions")
        if letter == "!":
            raise ValueError("no shouting")
        if letter == ".":
            yield jitney.End("", reason="length", usage=jitney.Usage(1, 2))
        elif letter == "x":
            yield ValueError("an outcome")
        else:
            yield None if letter == "-" else letter


def run(batch: FakeBatch, predict: object = spell) -> FakeLink:
    front = FakeLink([batch])
    tasks(make(predict, front, batched=False), front).run()  # pyright: ignore[reportArgumentType]
    return front


def test_parts_of_items_alternate_and_each_item_ends_on_its_own() -> None:
    link = run(streamed("abc", "d-e", "f"))
    assert link.said[1] == [(0, "a"), (1, "d"), (2, "f"), (0, "b"), (0, "c"), (1, "e")]
    assert link.ends[1] == {place: ("stop", None) for place in range(3)}


def test_an_item_whose_client_does_not_read_is_not_asked_for_its_next_part() -> None:
    front, asked = FakeLink([streamed("abc", "de")]), list[str]()
    front.stopped.append(1000)

    async def predict(text: str) -> AsyncIterator[jitney.Step[str]]:
        for letter in text:
            asked.append(letter)
            yield letter
        if text == "de":
            assert asked == ["a", "d", "e"], "the other one goes on"
            front.stopped.clear()

    tasks(make(predict, front, batched=False), front).run()
    assert front.said[1] == [(0, "a"), (1, "d"), (1, "e"), (0, "b"), (0, "c")]


def test_the_link_is_asked_who_is_paused_only_when_something_has_changed() -> None:
    asked = 0

    class Asked(FakeLink):
        def paused(self) -> list[int]:
            nonlocal asked
            asked += 1
            return super().paused()

    front = Asked([streamed("many letters", "and more")])
    tasks(make(spell, front, batched=False), front).run()
    assert len(front.said[1]) == 20
    assert asked == 1


def test_clients_that_take_no_parts_get_them_together() -> None:
    link = run(FakeBatch(1, ["abc", "de.f"], takes_parts={1}))
    assert link.outcomes[1][0].value == (2, b"abc", None)
    assert (link.said[1], link.ends[1][1]) == ([(1, "d"), (1, "e"), (1, "")], ("length", (1, 2)))


def test_what_fails_fails_alone(capsys: pytest.CaptureFixture[str]) -> None:
    link = run(streamed("a?", "b!", "cx", "d", "?"))
    assert [outcome.reason for outcome in link.outcomes[1]] == [
        *("invalid_input", "model_failed", "model_failed", "ok", "invalid_input")
    ]
    assert link.said[1] == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    log = capsys.readouterr().err
    assert "no shouting" in log
    assert "no questions" not in log


async def images(text: str) -> AsyncIterator[jitney.Step[np.ndarray, str]]:
    yield np.zeros(2, np.float32)
    yield jitney.End(answer=text) if text != "bad" else np.array([object()])


def test_parts_may_be_arrays_and_one_that_cannot_be_sent_fails_its_item() -> None:
    link = run(streamed("a", "bad"), images)
    assert [outcome.reason for outcome in link.outcomes[1]] == ["ok", "invalid_output"]
    assert link.said[1] == [(0, [0.0, 0.0]), (1, [0.0, 0.0])]


def test_a_generator_is_closed_at_the_end_of_its_item_and_before_the_end_is_sent() -> None:
    closed: list[str] = []
    front = FakeLink([streamed("a")])

    async def predict(text: str) -> AsyncIterator[jitney.Step[str]]:
        try:
            yield jitney.End(text)
        finally:
            await asyncio.sleep(0)
            assert not any(front.frames)
            closed.append(text)

    tasks(make(predict, front, batched=False), front).run()
    assert (closed, front.said[1], front.ends[1]) == (["a"], [(0, "a")], {0: ("stop", None)})


@pytest.mark.parametrize("awaits", [True, False])
def test_an_item_whose_client_leaves_is_cancelled_between_parts_and_within_them(awaits: bool) -> None:
    batch, ended = streamed("gone", "other"), list[str]()
    front = Front(batch)

    async def predict(text: str) -> AsyncIterator[jitney.Step[str]]:
        try:
            yield "first"
            while text == "gone":
                batch.unwanted.add(0)
                if awaits:
                    await asyncio.Event().wait()
                yield "again"
            while not ended:
                await asyncio.sleep(0.001)
        except BaseException as error:
            ended.append(type(error).__name__)
            raise
        front.end()

    tasks(make(predict, front, batched=False), front).run()
    assert ended in ([["CancelledError"]] if awaits else [["GeneratorExit"], ["CancelledError"]])
    assert [outcome.reason for outcome in front.outcomes[1]] == ["cancelled", "ok"]


@pytest.mark.parametrize("last", [None, jitney.End("end")])
def test_a_generator_that_catches_its_cancellation_is_closed_at_its_next_yield(last: jitney.End[str] | None) -> None:
    batch, yielded = streamed("stubborn", "other"), 0
    front = Front(batch)

    async def predict(text: str) -> AsyncIterator[jitney.Step[str]]:
        nonlocal yielded
        yield "first"
        batch.unwanted.add(0)
        while text == "other" and not (front.ended() or yielded > 3):
            await asyncio.sleep(0.001)
        while text == "stubborn" and yielded < 10:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0 if yielded else 60)
            yielded += 1
            yield last or "again"
        front.end()

    tasks(make(predict, front, batched=False), front).run()
    assert [outcome.reason for outcome in front.outcomes[1]] == ["cancelled", "ok"]
    assert [part for place, part in front.said[1] if place == 0] == ["first"], "no part after the verdict"
    assert yielded == 1


def test_a_generator_that_catches_its_cancellation_and_says_nothing_breaks_the_worker() -> None:
    batch, clock = streamed("stubborn"), Clock()
    front = Front(batch)

    async def predict(text: str) -> AsyncIterator[jitney.Step[str]]:
        yield text
        batch.unwanted.add(0)
        while clock.now < 1000:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                clock.now += 100

    with pytest.raises(WorkerBroken, match="was cancelled and has not ended for more than 3 s"):
        tasks(make(predict, front, batched=False), front, batch_timeout_s=3, clock=clock).run()
    clock.now = 1000


def test_the_first_part_moves_the_deadline_and_the_front_cancels_then() -> None:
    batch = streamed("a", "b")

    async def predict(text: str) -> AsyncIterator[jitney.Step[str]]:
        if text == "a":
            yield "first"
        batch.expired |= {0, 1}
        await asyncio.sleep(0.2)
        yield "last"

    link = run(batch, predict)
    assert [outcome.reason for outcome in link.outcomes[1]] == ["ok", "cancelled"]
    assert link.said[1] == [(0, "first"), (0, "last")]


def test_each_part_is_a_sign_of_life_and_silence_fails_its_item() -> None:
    front, clock = Front(streamed("talks"), FakeBatch(2, ["silent"])), Clock()

    async def predict(text: str) -> AsyncIterator[jitney.Step[str]]:
        if text == "silent":
            await asyncio.Event().wait()
        for _ in range(5):
            yield None
            clock.now += 1
            await asyncio.sleep(0.06)
        front.end()

    tasks(make(predict, front, batched=False), front, batch_timeout_s=3, clock=clock).run()
    assert [front.outcomes[batch][0].reason for batch in (1, 2)] == ["ok", "model_failed"]


def test_each_generator_sees_its_own_item_from_its_first_line_to_its_last() -> None:
    seen: list[tuple[str, int]] = []

    async def predict(text: str) -> AsyncIterator[jitney.Step[str]]:
        try:
            for letter in text:
                [request], [id] = jitney.context().requests, jitney.context().ids
                seen.append((request.headers["x-tenant"], id))
                yield letter
                await asyncio.sleep(0)
        finally:
            seen.append((text, jitney.context().ids[0]))

    enter("d", 0, None)
    try:
        run(streamed("abc", "def"), predict)
    finally:
        leave()
    assert set(seen) == {("abc", 1000), ("def", 1001)}


def test_a_generator_whose_client_does_not_read_is_not_asked_for_its_next_part() -> None:
    front = Front(streamed("slow", "quick"))

    async def predict(text: str) -> AsyncIterator[jitney.Step[str]]:
        for letter in text:
            if text == "slow":
                assert not front.stopped
                front.stopped = [1000] if letter == "s" else []
            yield letter
        if text == "quick":
            front.stopped = []
            front.end()

    tasks(make(predict, front, batched=False), front).run()
    parts = front.said[1]
    assert [part for place, part in parts if place == 0] == list("slow")
    assert parts.index((1, "k")) < parts.index((0, "l"))


def test_a_generator_that_never_awaits_lets_others_go_on() -> None:
    front, other = Front(streamed("endless")), streamed("short")
    other.id = 2
    stop = False

    async def predict(text: str) -> AsyncIterator[jitney.Step[str]]:
        nonlocal stop
        if text == "short":
            yield "s"
            stop = True
            front.end()
            return
        front.give(other)
        while not stop:
            yield "e"

    tasks(make(predict, front, batched=False), front).run()
    assert front.said[2] == [(0, "s")]


def test_a_broken_model_ends_the_worker_after_what_it_said_was_sent() -> None:
    front = FakeLink([streamed("a")])

    async def predict(text: str) -> AsyncIterator[jitney.Step[str]]:
        yield text
        raise WorkerBroken("the engine has ended")

    with pytest.raises(WorkerBroken, match="the engine has ended"):
        tasks(make(predict, front, batched=False), front).run()
    assert front.said[1] == [(0, "a")]
