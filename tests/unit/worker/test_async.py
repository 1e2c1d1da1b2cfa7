"""A `predict` that is `async def`: one coroutine per batch, or with `batched=False` one per item at the same time."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import jitney
import numpy as np
import pytest
from batches import LOOPS, answer, make, one, tasks
from fake_link import FakeBatch, FakeLink, Outcome
from jitney.context import enter, leave
from jitney.deployments.deployment import Deployment
from jitney.errors import DeadlineExceeded, InvalidInput, Unavailable, WorkerBroken


@pytest.fixture(autouse=True)
def no_loop_is_left() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    yield
    while LOOPS:
        LOOPS.pop().ending(None)()


def texts(outcomes: list[Outcome]) -> list[str]:
    return [outcome.value[1].decode() if outcome.reason == "ok" else outcome.reason for outcome in outcomes]


class Meeting:
    """Ends for all who came when so many have come: proof that they run at the same time."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._complete = asyncio.Event()

    async def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._complete.set()
        await self._complete.wait()


@pytest.mark.parametrize("overlapped", [False, True])
def test_a_batch_is_one_coroutine(overlapped: bool) -> None:
    calls: list[list[str]] = []

    async def predict(items: list[str]) -> list[str]:
        calls.append(items)
        await asyncio.sleep(0)
        return [item.upper() for item in items]

    link = answer(predict, FakeBatch(1, ["a", "b"]), FakeBatch(2, ["c"]), overlapped=overlapped)
    assert (texts(link.outcomes[1]), texts(link.outcomes[2])) == (["A", "B"], ["C"])
    assert calls == [["a", "b"], ["c"]]
    assert link.sent_early == []


def test_a_failing_item_of_a_batch_is_found_as_without_async() -> None:
    async def predict(items: list[str]) -> list[str]:
        await asyncio.sleep(0)
        if "bad" in items:
            raise ValueError("no")
        return items

    assert texts(one(predict, ["a", "bad", "c", "d"])) == ["a", "model_failed", "c", "d"]


@pytest.mark.parametrize("overlapped", [False, True])
def test_items_run_at_the_same_time_and_each_is_answered_when_it_has_ended(overlapped: bool) -> None:
    meeting = Meeting(3)
    released = asyncio.Event()

    async def predict(item: str) -> str:
        await meeting()
        if item == "slow":
            await released.wait()
        elif item == "last":
            await asyncio.sleep(0.01)
            released.set()
        return item.upper()

    link = answer(predict, FakeBatch(1, ["slow", "b", "last"]), batched=False, overlapped=overlapped)
    assert texts(link.outcomes[1]) == ["SLOW", "B", "LAST"]
    ended = [place for frame in link.frames for _, place in frame]
    assert (ended[0], sorted(ended)) == (1, [0, 1, 2])


@pytest.mark.parametrize("error", [ValueError("bad luck"), SystemExit(3), asyncio.CancelledError()])
def test_an_item_that_raises_fails_alone(error: BaseException) -> None:
    async def predict(item: str) -> str:
        await asyncio.sleep(0)
        if item == "b":
            raise error
        return item

    assert texts(one(predict, ["a", "b", "c"], batched=False)) == ["a", "model_failed", "c"]


def test_errors_for_clients_and_bad_answers_are_outcomes_of_their_items(capsys: pytest.CaptureFixture[str]) -> None:
    async def predict(item: str) -> str:
        await asyncio.sleep(0)
        if item == "a":
            raise InvalidInput("no", status=418)
        if item == "b":
            raise Unavailable("away", retry_after_s=5)
        return cast("Any", 7) if item == "c" else item

    first, second, third, fourth = one(predict, ["a", "b", "c", "d"], batched=False)
    assert (first.reason, first.status) == ("invalid_input", 418)
    assert (second.reason, second.retry_after_s) == ("unavailable", 5)
    assert (third.reason, fourth.reason) == ("invalid_output", "ok")
    assert "no" not in capsys.readouterr().err.split()


def test_an_array_that_cannot_be_sent_fails_alone() -> None:
    async def predict(item: str) -> np.ndarray:
        await asyncio.sleep(0)
        return np.array([object()]) if item == "b" else np.zeros(2, np.float32)

    outcomes = one(predict, ["a", "b"], batched=False)
    assert [outcome.reason for outcome in outcomes] == ["ok", "invalid_output"]


@pytest.mark.parametrize("batched", [False, True])
def test_a_coroutine_is_cancelled_when_no_request_waits_any_more(
    batched: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = FakeBatch(1, ["a", "b"])
    cancelled: list[Any] = []

    async def predict(item: Any) -> Any:
        if batched or item == "b":
            batch.unwanted |= {0, 1} if batched else {1}
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(item)
                raise
        return item

    predict.__annotations__ = {"item": list[str], "return": list[str]} if batched else {"item": str, "return": str}
    outcomes = answer(predict, batch, batched=batched).outcomes[1]
    assert texts(outcomes) == (["cancelled", "cancelled"] if batched else ["a", "cancelled"])
    assert cancelled == ([["a", "b"]] if batched else ["b"])
    assert capsys.readouterr().err == ""


def test_each_coroutine_sees_the_id_of_its_own_item() -> None:
    enter("d", 0, None)
    meeting = Meeting(3)
    seen: dict[str, tuple[int, ...]] = {}

    async def predict(item: str) -> str:
        await meeting()
        seen[item] = await asyncio.create_task(asyncio.sleep(0, jitney.context().ids))
        return item

    try:
        one(predict, ["a", "b", "c"], batched=False)
    finally:
        leave()
    assert seen == {"a": (1000,), "b": (1001,), "c": (1002,)}


@pytest.mark.parametrize("batched", [False, True])
def test_each_call_reads_the_requests_of_its_own_items(batched: bool) -> None:
    enter("d", 0, None)

    async def one_item(item: str) -> str:
        await asyncio.sleep(0)
        [request] = jitney.context().requests
        return f"{item} {request.id} {request.key_name} {request.headers['x-tenant']}"

    async def whole(items: list[str]) -> list[str]:
        if len(items) > 1:
            raise ValueError("not together")
        return [await one_item(item) for item in items]

    try:
        outcomes = one(whole if batched else one_item, ["a", "b"], batched=batched)
        assert jitney.context().requests == ()
    finally:
        leave()
    assert texts(outcomes) == ["a r-0 team a", "b r-1 team b"]


def test_a_broken_model_ends_the_worker() -> None:
    async def predict(item: str) -> str:
        await asyncio.sleep(0)
        raise WorkerBroken("the connection is closed")

    link = FakeLink([FakeBatch(1, ["a", "b"])])
    with pytest.raises(WorkerBroken, match="the connection is closed"):
        tasks(make(predict, link, batched=False), link).run()
    assert link.frames[-1], "what had failed by then is sent"


def test_one_event_loop_serves_the_life_of_a_model() -> None:
    class Counting:
        def __init__(self) -> None:
            self.loops: set[Any] = {asyncio.get_event_loop()}

        async def predict(self, items: list[str]) -> list[str]:
            self.loops.add(asyncio.get_running_loop())
            return [str(len(self.loops)) for _ in items]

        async def close(self) -> None:
            self.loops.add(asyncio.get_running_loop())
            assert len(self.loops) == 1

    model = Deployment(Counting, {}).load({})
    assert model.predict(["a"]) == model.predict(["b"]) == ["1"]
    assert model.close is not None
    model.close()


def test_a_task_of_the_models_that_ends_the_loop_fails_its_batch_and_no_other() -> None:
    async def leave_python() -> None:
        raise SystemExit(3)

    async def predict(items: list[str]) -> list[str]:
        if items == ["a"]:
            asyncio.get_running_loop().create_task(leave_python())
            await asyncio.sleep(10)
        return items

    link = answer(predict, FakeBatch(1, ["a"]), FakeBatch(2, ["b"]))
    assert (texts(link.outcomes[1]), texts(link.outcomes[2])) == (["model_failed"], ["b"])


def test_an_item_whose_deadline_passes_in_a_called_model_is_not_split() -> None:
    calls: list[int] = []

    async def predict(items: list[str]) -> list[str]:
        calls.append(len(items))
        raise DeadlineExceeded("too late")

    assert texts(one(predict, ["a", "b"])) == ["deadline_exceeded"] * 2
    assert calls == [2]
