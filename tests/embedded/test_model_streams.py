"""`model.stream(item)`: parts of every kind, how a stream ends, and that leaving it reaches the worker."""

import asyncio
import gc
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jitney
import numpy as np
import pytest
from jitney.types.steps import NOTHING
from witnesses import Witness, app, until, wait


async def texts(parts: jitney.Parts[Any]) -> list[Any]:
    return [part async for part in parts]


def test_parts_come_in_order_and_the_end_says_why() -> None:
    async def main() -> None:
        async with jitney.run(app("spelling"), app("stepping")) as models:
            async with models.spell.stream("hey") as parts:
                assert await texts(parts) == ["h", "e", "y"]
            assert (parts.received, parts.end) == (3, jitney.End(reason="stop"))
            counting = models.counting.stream({"to": 2})
            assert await texts(counting) == [{"number": 0}, {"number": 1}]
            assert counting.end == jitney.End(answer=2, reason="length", usage=jitney.Usage(1, 2))
            written = models.write.stream({"text": "abc"})
            assert await texts(written) == ["a", "b", "c"]
            assert (written.end.reason, written.end.usage, written.end.answer) == (
                "length",
                jitney.Usage(1, 3),
                NOTHING,
            )
            assert await texts(written) == [], "it has ended"
            assert await models.spell("hey") == "hey"
            streams = [texts(models.spell.stream(f"text {n}")) for n in range(200)]
            assert ["".join(letters) for letters in await asyncio.gather(*streams)] == [f"text {n}" for n in range(200)]

    asyncio.run(main())


def test_parts_of_every_kind() -> None:
    async def main() -> None:
        async with jitney.run(app("showing")) as models:
            showing = models.showing
            assert await texts(showing.words.stream("a bus")) == [
                {"text": "a", "place": 0},
                {"text": "bus", "place": 1},
            ]
            first, second = await texts(showing.arrays.stream(2))
            np.testing.assert_array_equal(first, np.zeros((2, 3), np.float32))
            np.testing.assert_array_equal(second, np.ones((2, 3), np.float32))
            pixels = np.full((4, 5, 3), 200, np.uint8)
            images = showing.images.stream(pixels)
            [preview] = await texts(images)
            assert isinstance(preview, jitney.Image) and preview.to_numpy().shape == (1, 5, 3)
            assert isinstance(images.end.answer, jitney.Image) and images.end.answer.to_numpy().shape == (4, 5, 3)
            assert [len(part) for part in await texts(showing.flood.stream(3))] == [1 << 20] * 3

    asyncio.run(main())


def test_each_part_comes_when_it_is_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with jitney.run(app("spelling")) as models:
            gate = tmp_path / "gate"
            parts = await models.counting.stream({"to": 2, "gate": str(gate)}).begin()
            assert await anext(parts) == {"number": 0}, "the model waits for the gate"
            waiting = asyncio.create_task(anext(parts))  # pyright: ignore[reportArgumentType]
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="one caller at a time"):
                await anext(parts)
            gate.touch()
            assert await waiting == {"number": 1}
            with pytest.raises(RuntimeError, match="read all its parts first"):
                _ = parts.end
            with pytest.raises(StopAsyncIteration):
                await anext(parts)
            assert parts.end.answer == 2

    asyncio.run(main())


@pytest.mark.parametrize("way", ["block", "close", "drop", "task", "timeout"])
def test_who_leaves_a_stream_cancels_the_item(witness: Witness, tmp_path: Path, way: str) -> None:
    gate = tmp_path / "gate"

    async def leave(stream: jitney.Parts[str]) -> None:
        if way == "block":
            async with stream as parts:
                async for _ in parts:
                    await until(witness.calls, "the next step runs")
                    break
            return
        assert await anext(stream) == "0"
        await until(witness.calls, "the next step runs")
        if way == "close":
            stream.close()
            with pytest.raises(jitney.Cancelled, match="closed before its end"):
                await anext(stream)
        elif way == "task":
            waiting = asyncio.create_task(anext(stream))  # pyright: ignore[reportArgumentType]
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            held.append(stream)
        elif way == "timeout":
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(stream), 0.05)
            held.append(stream)

    held: list[object] = []

    async def main() -> None:
        async with jitney.run(app("showing")) as models:
            await leave(models.showing.ticks.stream(str(gate)))
            gc.collect()
            gate.touch()
            # One replica computes one item at a time: this answer comes only when the stream was given up.
            assert await models.showing.words("a bus") == [{"text": "a", "place": 0}, {"text": "bus", "place": 1}]
            assert 'outcome="cancelled"} 1' in models.metrics()

    asyncio.run(main())
    assert len(witness.computed()) < 1000, "the item ended when its reader left; all steps are a million"


def test_a_failure_is_raised_where_it_happens() -> None:
    async def main() -> None:
        async with jitney.run(app("spelling"), app("noop")) as models:
            parts = models.spell.stream("ab!", request_id="mine")
            seen = list[str]()
            with pytest.raises(jitney.ModelFailed, match="no shouting") as failed:
                async for part in parts:
                    seen.append(part)
            assert (seen, parts.received, failed.value.request_id) == (["a", "b"], 2, "mine")
            with pytest.raises(jitney.ModelFailed):
                await anext(parts)
            with pytest.raises(RuntimeError, match="has no end: ModelFailed: ValueError: no shouting"):
                _ = parts.end
            early = models.spell.stream("!")
            with pytest.raises(jitney.ModelFailed):
                await early.begin()
            assert early.received == 0
            with pytest.raises(jitney.InvalidInput, match="expected str"):
                await texts(models.spell.stream(3))
            with pytest.raises(jitney.InvalidInput, match="to"):
                await texts(models.counting.stream({"to": "x"}))
            with pytest.raises(TypeError, match=r"answers once: call models\.shout\(item\)"):
                models.shout.stream("x")

    asyncio.run(main())


def test_a_stream_that_is_used_as_the_other_kind_says_how_to_read_it() -> None:
    async def main() -> None:
        async with jitney.run(app("spelling")) as models:
            stream: Any = models.spell.stream("ab")
            says = r"`async with models\.spell\.stream\(item\) as parts`, then `async for part in parts`"
            with pytest.raises(TypeError, match=f"a stream is not awaited: write {says}"):
                await stream
            with pytest.raises(TypeError, match=says):
                list(stream)
            with pytest.raises(TypeError, match=says), stream:
                pass
            assert await texts(stream) == ["a", "b"], "it was not read by then"

    asyncio.run(main())
    with jitney.run_sync(app("spelling")) as models:
        stream: Any = models.spell.stream("ab")
        says = r"`with models\.spell\.stream\(item\) as parts`, then `for part in parts`"

        async def wait_for() -> None:
            with pytest.raises(TypeError, match=f"a stream is not awaited: write {says}"):
                await stream
            with pytest.raises(TypeError, match=says):
                async with stream:
                    pass
            with pytest.raises(TypeError, match=says):
                async for _ in stream:
                    pass

        asyncio.run(wait_for())
        assert list(stream) == ["a", "b"]


def test_a_lost_worker_ends_its_streams(witness: Witness, tmp_path: Path) -> None:
    async def main() -> None:
        async with jitney.run(app("showing")) as models:
            parts = models.showing.ticks.stream(str(tmp_path / "never"))
            assert await anext(parts) == "0"
            await until(witness.calls, "the next step runs")
            os.kill(witness.workers()[0], signal.SIGKILL)
            with pytest.raises(jitney.WorkerLost):
                await anext(parts)
            assert parts.received == 1
            assert await models.showing.words("a") == [{"text": "a", "place": 0}]

    asyncio.run(main())


def test_a_deadline_ends_a_stream(witness: Witness, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def main() -> None:
        async with jitney.run(app("showing")) as models:
            parts = models.showing.ticks.stream(str(gate), timeout_s=2)
            assert await anext(parts) == "0"
            with pytest.raises(jitney.DeadlineExceeded):
                await anext(parts)
            gate.touch()
            assert await models.showing.words("a") == [{"text": "a", "place": 0}]
            with pytest.raises(ValueError, match="timeout_s is a length above 0"):
                await anext(models.showing.ticks.stream("", timeout_s=0))

    asyncio.run(main())
    assert len(witness.computed()) <= 2


def test_an_engine_that_ends_ends_its_streams(tmp_path: Path) -> None:
    async def main() -> None:
        gate = tmp_path / "gate"
        engine = jitney.run(app("spelling"), drain_timeout_s=0.2)
        models = await engine.start()
        parts = models.counting.stream({"to": 3, "gate": str(gate)})
        assert await anext(parts) == {"number": 0}
        waiting = asyncio.create_task(anext(parts))  # pyright: ignore[reportArgumentType]
        await asyncio.sleep(0)
        await engine.close()
        with pytest.raises(jitney.Draining):
            await waiting

    asyncio.run(main())


def test_a_stream_is_finished_before_its_engine_ends(tmp_path: Path) -> None:
    async def main() -> None:
        gate = tmp_path / "gate"
        engine = jitney.run(app("spelling"))
        models = await engine.start()
        parts, late = models.counting.stream({"to": 3, "gate": str(gate)}), models.spell.stream("late")
        assert await anext(parts) == {"number": 0}
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        gate.touch()
        assert await texts(parts) == [{"number": 1}, {"number": 2}]
        await closing
        with pytest.raises(jitney.Draining):
            await anext(late)

    asyncio.run(main())


def test_what_waits_unread_is_bounded(witness: Witness) -> None:
    async def main() -> None:
        async with jitney.run(app("showing")) as models:
            async with models.showing.flood.stream(100_000) as parts:
                await anext(parts)
                made = await witness.calls_at_rest()
                # 5 on a quiet machine. A worker that does not get its turn learns later that it has to pause.
                assert 1 < made < 500, "the model makes no more parts until the program has read some"
            # The way is free for others.
            assert await models.showing.words("a") == [{"text": "a", "place": 0}]

    asyncio.run(main())


def test_threads_read_streams_too(witness: Witness, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with jitney.run_sync(app("spelling"), app("showing"), app("noop")) as models:
        assert list(models.spell.stream("hey")) == ["h", "e", "y"]
        with models.counting.stream({"to": 2}) as parts:
            assert [part["number"] for part in parts] == [0, 1]
        assert (parts.end.answer, parts.end.reason, parts.received) == (2, "length", 2)
        failing = models.spell.stream("ab!").begin()
        assert (next(failing), next(failing)) == ("a", "b")
        with pytest.raises(jitney.ModelFailed, match="no shouting"):
            next(failing)
        assert failing.received == 2
        with pytest.raises(jitney.ModelFailed):
            models.spell.stream("!").begin()
        with pytest.raises(TypeError, match="answers once"):
            models.shout.stream("x")
        with ThreadPoolExecutor(8) as pool:
            spelled = list(pool.map("".join, [models.spell.stream(f"text {number}") for number in range(64)]))
        assert spelled == [f"text {number}" for number in range(64)]
        with models.showing.ticks.stream(str(gate)) as ticks:
            assert next(ticks) == "0"
            wait(witness.calls, "the next step runs")
        with pytest.raises(jitney.Cancelled):
            next(ticks)
        gate.touch()
        assert models.showing.words("a") == [{"text": "a", "place": 0}]
        assert next(models.showing.ticks.stream(str(gate))) == "0", "and it is dropped"
        assert models.showing.words("a") == [{"text": "a", "place": 0}]
    assert "1" in witness.computed()


def test_a_stream_that_is_closed_on_another_thread_ends(tmp_path: Path) -> None:
    with jitney.run_sync(app("showing")) as models, ThreadPoolExecutor(1) as pool:
        ticks = models.showing.ticks.stream(str(tmp_path / "never"))
        assert next(ticks) == "0"
        waiting = pool.submit(next, ticks)
        ticks.close()
        with pytest.raises(jitney.Cancelled, match="closed before its end"):
            waiting.result()
        with pytest.raises(RuntimeError, match=r"has no end: Cancelled: .*closed before its end"):
            _ = ticks.end
        assert ticks.begin() is ticks, "a closed stream is returned"


def test_an_asynchronous_generator_has_a_stream_and_is_closed_with_it(witness: Witness, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def main() -> None:
        async with jitney.run(app("showing")) as models:
            whole = models.speaking.stream(str(gate))
            async with models.speaking.stream(str(gate)) as left:
                assert (await anext(left), await anext(whole)) == ("0", "0"), "side by side"
            await until(lambda: witness.computed() == ["closed"], "the generator that was left is closed")
            gate.touch()
            assert await texts(whole) == ["1", "2"]

    asyncio.run(main())
    assert witness.computed() == ["closed", "closed"]


def test_a_stream_that_a_program_leaves_unread_ends_in_time_and_frees_its_replica(witness: Witness) -> None:
    async def main() -> None:
        async with jitney.run(app("showing"), options={"showing.stream_timeout_s": 3}) as models:
            unread = models.showing.flood.stream(100_000)
            await anext(unread)
            # The only replica computes one item at a time, and its generator waits for a reader.
            assert await models.showing.words("a") == [{"text": "a", "place": 0}]
            with pytest.raises(jitney.DeadlineExceeded):
                await texts(unread)

    asyncio.run(main())
    assert len(witness.calls()) < 20, "the model made no parts that no program read"
