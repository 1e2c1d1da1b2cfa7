"""`await model(x)`: values there and back, errors by their class, cancel, deadlines, batches."""

import asyncio
import gc
import re
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import jitney
import numpy as np
import pytest
from witnesses import Witness, app, until, wait


def test_values_of_every_kind_come_back() -> None:
    async def main() -> None:
        async with jitney.run(app("noop"), app("arrays"), app("grouped")) as models:
            assert await models.noop({"a": [1, 2.5, None, "ü"]}) == {"a": [1, 2.5, None, "ü"]}
            assert await models.shout("hello") == "HELLO"
            assert await models.mirror(b"abc") == b"cba"
            assert await models.mirror(memoryview(b"x" * 100_000 + b"y")) == b"y" + b"x" * 100_000
            doubled = await models.double(np.arange(6, dtype=np.float32).reshape(2, 3))
            np.testing.assert_array_equal(doubled, np.arange(6, dtype=np.float32).reshape(2, 3) * 2)
            assert not doubled.flags.owndata and not doubled.flags.writeable
            big = np.random.default_rng(0).random((300, 300), np.float32)
            np.testing.assert_array_equal(await models.double(big), big * 2)
            scores = await models.score((np.full((4, 4), 3, np.uint8), np.eye(4, dtype=bool)))
            assert scores == {"total": 48, "masked": 12}
            assert (await models["grouped"]({"prompt": "a bus"}))["size"] == 1

    asyncio.run(main())


def test_an_array_of_more_axes_than_are_taken_is_refused_and_its_worker_lives() -> None:
    async def main() -> None:
        async with jitney.run(app("tensors")) as models:
            cases = [([1] * 64, "at most 32 axes, got 64"), ([1, 1 << 40, 0], "at most 1048576 empty lists")]
            for shape, says in cases:
                with pytest.raises(jitney.InvalidInput, match=says):
                    await models.floats(np.zeros(shape, np.float32))
            np.testing.assert_array_equal(await models.floats(np.ones(2, np.float32)), np.ones(2, np.float32))

    asyncio.run(main())


def test_items_that_wait_together_ride_together(witness: Witness) -> None:
    async def main() -> None:
        async with jitney.run(app("sleepy")) as models:
            witness.shut_gate()
            first = asyncio.create_task(models.sleepy("first"))
            await until(witness.calls, "the first is with the model")
            rest = [asyncio.create_task(models.sleepy(f"text {n}")) for n in range(40)]
            await asyncio.sleep(0)
            witness.open_gate()
            assert await first == "tsrif"
            assert await asyncio.gather(*rest) == [f"text {n}"[::-1] for n in range(40)]

    asyncio.run(main())
    assert [len(items) for items in witness.calls()] == [1, 40]


def test_many_keeps_order_and_each_item_fails_alone() -> None:
    async def main() -> None:
        async with jitney.run(app("strict"), app("crashing")) as models:
            orders: list[object] = [{"name": "bread"}, {"name": "nothing"}, {"count": 2}, {"name": "tea", "count": 3}]
            bread, nothing, nameless, tea = await models.strict.many(orders, return_exceptions=True)
            assert (bread, tea) == ("1 bread", "3 tea")
            assert isinstance(nothing, jitney.InvalidInput) and nothing.status == 422
            assert isinstance(nameless, jitney.InvalidInput) and "name" in nameless.message
            one, wrong, raised = await models.crashing.many(["abc", 7, "raise"], return_exceptions=True)
            assert one == "cba"
            assert isinstance(wrong, jitney.InvalidInput)
            assert isinstance(raised, jitney.ModelFailed)
            assert await models.strict.many([]) == []

    asyncio.run(main())


def test_many_raises_the_first_failure() -> None:
    async def main() -> None:
        async with jitney.run(app("strict"), app("crashing")) as models:
            with pytest.raises(jitney.InvalidInput) as first:
                await models.strict.many([{"name": "bread"}, {"name": "nothing"}, {"count": 2}])
            assert first.value.status == 422 and "name" not in first.value.message
            with pytest.raises(jitney.ModelFailed):
                await models.crashing.many(["abc", "raise", "de"])
            assert await models.crashing.many(["abc", "de"]) == ["cba", "ed"]

    asyncio.run(main())
    with jitney.run_sync(app("noop")) as models:
        assert models.shout.many(["a", "b"]) == ["A", "B"]
        with pytest.raises(jitney.InvalidInput, match="surrogates"):
            models.shout.many(["a", "\ud800"])


def test_what_predict_raises_arrives_with_its_words(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with jitney.run(app("crashing")) as models:
            with pytest.raises(jitney.ModelFailed, match="RuntimeError: the model cannot do raise this") as caught:
                await models.crashing("raise this")
            assert caught.value.http_status == 500
            assert "crashing.py" not in str(caught.value)
            ids.append(caught.value.request_id)

    ids: list[str | None] = []
    asyncio.run(main())
    wait(lambda: f"(request {ids[0]})" in caplog.text, "the failure is in the log, next to its id")
    (record,) = [record for record in caplog.records if "predict failed" in record.getMessage()]
    assert (record.name, record.levelname) == ("jitney", "ERROR")
    assert "/0: predict failed: RuntimeError: the model cannot do raise this (" in record.getMessage()
    assert "\nTraceback" in record.getMessage() and "crashing.py" in record.getMessage(), (
        "the traceback is in the record"
    )
    assert "Traceback" not in capfd.readouterr().err


def test_a_call_may_have_an_id_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with jitney.run(app("crashing")) as models:
            _, raised = await models.crashing.many(["fine", "raise this"], request_id="order-7", return_exceptions=True)
            assert isinstance(raised, jitney.ModelFailed) and raised.request_id == "order-7"
            for unfit in ("a b", "é", "x" * 129, "two\nlines"):
                with pytest.raises(ValueError, match="a request id is 1 to 128 characters of visible ASCII"):
                    await models.crashing("fine", request_id=unfit)

    asyncio.run(main())
    wait(lambda: "(request order-7)" in caplog.text, "the failure is in the log, next to its id")


def test_a_cancelled_task_takes_its_item_out_of_the_queue(witness: Witness) -> None:
    async def main() -> None:
        async with jitney.run(app("sleepy")) as models:
            witness.shut_gate()
            first = asyncio.create_task(models.sleepy("first"))
            await until(witness.calls, "the first is with the model")
            unwanted = asyncio.create_task(models.sleepy("unwanted"))
            wanted = asyncio.create_task(models.sleepy("wanted"))
            await asyncio.sleep(0)
            unwanted.cancel()
            with pytest.raises(asyncio.CancelledError):
                await unwanted
            witness.open_gate()
            assert await asyncio.gather(first, wanted) == ["tsrif", "detnaw"]

    asyncio.run(main())
    assert witness.computed() == ["first", "wanted"]


def test_a_deadline_is_an_exception_of_its_own(witness: Witness) -> None:
    async def main() -> None:
        async with jitney.run(app("sleepy")) as models:
            witness.shut_gate()
            with pytest.raises(jitney.DeadlineExceeded, match="the deadline passed") as caught:
                await models.sleepy("late", timeout_s=0.2)
            assert caught.value.http_status == 504
            witness.open_gate()
            for nonsense in (0, -1, float("nan")):
                with pytest.raises(ValueError, match="timeout_s is a length above 0"):
                    await models.sleepy("never", timeout_s=nonsense)
                with pytest.raises(ValueError, match="timeout_s is a length above 0"):
                    await models.sleepy.many(["never"], timeout_s=nonsense)
            with pytest.raises(ValueError, match="high, normal or low"):
                await models.sleepy("never", priority="urgent")  # pyright: ignore[reportArgumentType]

    asyncio.run(main())


@pytest.mark.parametrize("nonsense", [0, -1, float("nan")])
def test_a_deadline_that_is_none_is_refused_in_threads_too(nonsense: float) -> None:
    with jitney.run_sync(app("noop")) as models:
        with pytest.raises(ValueError, match="timeout_s is a length above 0"):
            models.noop(1, timeout_s=nonsense)
        with pytest.raises(ValueError, match="timeout_s is a length above 0"):
            models.noop.many([1], timeout_s=nonsense)


def test_overload_says_when_to_come_back(witness: Witness) -> None:
    async def main() -> None:
        async with jitney.run(app("sleepy"), options={"sleepy.max_queued_items": 2}) as models:
            witness.shut_gate()
            calls = [asyncio.create_task(models.sleepy("first"))]
            await until(witness.calls, "the first is with the model")
            calls += [asyncio.create_task(models.sleepy(f"{n}")) for n in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(jitney.Overloaded, match="max_queued_items") as caught:
                await models.sleepy("too many")
            assert caught.value.retry_after_s is not None and caught.value.retry_after_s > 0
            assert caught.value.http_status == 429
            witness.open_gate()
            await asyncio.gather(*calls)

    asyncio.run(main())


def test_a_wrong_name_is_told_with_the_right_one() -> None:
    async def main() -> None:
        async with jitney.run(app("sleepy")) as models:
            with pytest.raises(AttributeError, match="did you mean 'sleepy'"):
                models.sleepi  # noqa: B018
            with pytest.raises(jitney.NotFound, match="did you mean 'sleepy'"):
                models["sleepi"]
            assert dir(models) == ["live_events", "metrics", "sleepy"]

    asyncio.run(main())


def test_threads_share_batches_through_the_blocking_twin(witness: Witness) -> None:
    with jitney.run_sync(app("sleepy")) as models, ThreadPoolExecutor(20) as pool:
        assert models.sleepy("one") == "eno"
        assert list(pool.map(models.sleepy, [f"text {n}" for n in range(200)])) == [
            f"text {n}"[::-1] for n in range(200)
        ]
        assert models.sleepy.many(["a b", 3], return_exceptions=True)[0] == "b a"
    assert len(witness.calls()) < 150


def test_a_loop_in_another_thread_has_its_own_mailbox() -> None:
    async def main() -> None:
        async with jitney.run(app("noop")) as models:
            answers: list[str] = []

            async def ask() -> None:
                answers.extend(await asyncio.gather(*(models.shout(f"a{n}") for n in range(10))))

            thread = threading.Thread(target=lambda: asyncio.run(ask()))
            thread.start()
            await asyncio.to_thread(thread.join)
            assert answers == [f"A{n}" for n in range(10)]
            assert await models.shout("here") == "HERE"

    asyncio.run(main())


def test_ten_thousand_calls_at_once_are_all_answered() -> None:
    async def main() -> None:
        options = {"shout.max_queued_items": 20_000, "shout.request_timeout_s": 120, "shout.max_wait_s": 60}
        async with jitney.run(app("noop"), options=options) as models:
            answers = await asyncio.gather(*(models.shout(f"t{n}") for n in range(10_000)))
            assert answers == [f"T{n}" for n in range(10_000)]

    asyncio.run(main())


def test_a_start_that_nobody_finishes_leaves_nobody_behind(witness: Witness) -> None:
    witness.shut_gate()
    running = jitney.run(app("slow_load"))
    starting = running.__aenter__()

    async def begin() -> None:
        starting.send(None)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    wait(witness.workers, "the model is being loaded")
    loop.close()
    starting.close()  # as the collector does
    witness.assert_nobody_left()
    assert running is not None, "it was not the collector that ended it"


def test_two_engines_live_in_one_program() -> None:
    async def main() -> None:
        async with jitney.run(app("noop")) as left, jitney.run(app("sleepy")) as right:
            assert await asyncio.gather(left.shout("a"), right.sleepy("bc")) == ["A", "cb"]

    asyncio.run(main())


def test_what_cannot_be_sent_is_the_callers_mistake() -> None:
    with jitney.run_sync(app("noop"), app("arrays")) as models:
        with pytest.raises(jitney.InvalidInput, match="surrogates"):
            models.shout("\ud800")
        wrong, right = models.shout.many(["\ud800", "ü"], return_exceptions=True)
        assert isinstance(wrong, jitney.InvalidInput) and right == "Ü"
        with pytest.raises(jitney.InvalidInput, match="surrogates"):
            models.noop("\ud800")
        with pytest.raises(jitney.InvalidInput, match="float32, got an array of object; arrays can hold bool"):
            models.double(np.array([object()]))


def test_a_call_after_the_block_is_told_that_it_has_ended() -> None:
    with jitney.run_sync(app("noop")) as models:
        shout = models.shout
        assert shout("a") == "A"
    with pytest.raises(jitney.Draining, match="`with` block of this engine has ended"):
        shout("a")
    with pytest.raises(jitney.Draining):
        shout.many(["a"])
    [error] = shout.many(["a"], return_exceptions=True)
    assert isinstance(error, jitney.Draining)

    async def main() -> None:
        async with jitney.run(app("noop")) as models:
            shout = models.shout
            assert await shout("a") == "A"
        with pytest.raises(jitney.Draining, match="`with` block of this engine has ended"):
            await shout("a")

    asyncio.run(main())


def test_a_text_is_no_list_of_items() -> None:
    async def main() -> None:
        async with jitney.run(app("noop")) as models:
            for text, kind in (("abc", "str"), (b"abc", "bytes"), (bytearray(b"abc"), "bytearray")):
                with pytest.raises(TypeError, match=rf"a list of items, not a {kind}; one item alone: models.shout\("):
                    await models.shout.many(text)

    asyncio.run(main())
    with (
        jitney.run_sync(app("noop")) as models,
        pytest.raises(TypeError, match="a list of items, not a str"),
    ):
        models.shout.many("abc")


def test_the_metrics_of_an_engine_can_be_had() -> None:
    async def main() -> None:
        async with jitney.run(app("noop")) as models:
            await models.shout("hello")
            assert 'jitney_requests_total{deployment="shout",outcome="ok"} 1' in models.metrics()
            for _ in range(4):
                await models.shout("again")
            launch_cost = re.search(r'jitney_launch_cost_seconds\{deployment="shout"\} (\S+)', models.metrics())
            assert launch_cost is not None
            assert float(launch_cost[1]) > 0, "as of now"
            assert "metrics" in dir(models)
        # The engine that would update them has ended.
        assert 'jitney_requests_total{deployment="shout",outcome="ok"} 5' in models.metrics()

    asyncio.run(main())


def test_what_a_cancelled_call_was_lent_comes_back_by_itself(witness: Witness) -> None:
    async def main() -> None:
        async with jitney.run(app("held")) as models:
            witness.shut_gate()
            first = asyncio.create_task(models.held(np.zeros(4, np.float32)))
            await until(witness.calls, "the first is with the model")
            array = np.zeros(1 << 20, np.float32)
            waits = asyncio.create_task(models.held(array))
            await asyncio.sleep(0)
            waits.cancel()
            lives = weakref.ref(array)
            del array, waits
            # No other call is made: nothing but the return itself can give it back.
            await until(lambda: gc.collect() >= 0 and lives() is None, "the array is free again")
            witness.open_gate()
            await first

    asyncio.run(main())
