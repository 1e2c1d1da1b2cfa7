"""A program that does I/O of 5 ms and has a model inside, as its author wrote it three times, and with jitney.

    python -m stories.program VARIANT MODEL SECONDS

`none` has no model, `loop` calls it in the event loop, `thread` in a thread, `pool` in a pool of one process; `jitney`
is `jitney.run`. Prints figures as JSON.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stories import work
from stories.clients import quantile

HANDLERS, CALLERS, WARM_CALLS = 8, 8, 25
APP = Path(__file__).with_name("served") / "beside.py"
Model = Callable[[str], Awaitable[Any]]
_predict: work.Predict


def load_in_process(model: str) -> None:
    global _predict  # noqa: PLW0603  what a process of a pool holds between calls
    work.keep_to_model_core()
    _predict = work.MODELS[model]()


def in_process(text: str) -> Any:
    return _predict([text])[0]


@asynccontextmanager
async def loaded(variant: str, model: str) -> AsyncIterator[Model]:
    """The model where the variant has it."""
    loop = asyncio.get_running_loop()
    if variant == "jitney":
        import jitney  # noqa: PLC0415  the other programs do not have it

        async with jitney.run(f"{APP}:{model.title() if model != 'minilm' else 'Vectors'}") as models:
            yield models[model]
    elif variant == "pool":
        with ProcessPoolExecutor(1, initializer=load_in_process, initargs=(model,)) as pool:
            yield lambda text: loop.run_in_executor(pool, in_process, text)
    else:
        predict = work.MODELS[model]()
        if variant == "thread":
            yield lambda text: asyncio.to_thread(lambda: predict([text])[0])
            return

        async def in_loop(text: str) -> Any:
            answer = predict([text])[0]
            await asyncio.sleep(0)  # as a server does between two requests
            return answer

        yield in_loop


@asynccontextmanager
async def queries() -> AsyncIterator[list[Model]]:
    """The query of each handler to a database, which is a separate process."""
    command = [sys.executable, "-m", "stories.database"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        connected = [await asyncio.open_connection("127.0.0.1", port) for _ in range(HANDLERS)]

        def query(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Model:
            async def ask(_: str) -> bytes:
                writer.write(b"?")
                return await reader.readexactly(1)

            return ask

        try:
            yield [query(*connection) for connection in connected]
        finally:  # the end of its input would not reach it: a process of the pool may hold a copy
            process.terminate()


async def repeat(call: Callable[[str], Awaitable[Any]], seconds: float, wrong: "Wrong | None" = None) -> list[float]:
    """Call again and again; how long each took, in ms."""
    took_ms: list[float] = []
    end = (now := time.perf_counter()) + seconds
    while now < end:
        begin, text = now, f"text number {len(took_ms)} of a program"
        answer = await call(text)
        now = time.perf_counter()
        took_ms.append((now - begin) * 1e3)
        if wrong:
            wrong.look(text, answer)
    return took_ms


class Wrong:
    """Counts answers that are not the model's: another text, or not a vector of length 1."""

    def __init__(self) -> None:
        self.count = 0

    def look(self, text: str, answer: Any) -> None:
        is_right = answer == text.upper() if isinstance(answer, str) else abs(float(answer @ answer) - 1) < 1e-3
        self.count += not is_right


async def all_handlers(handlers: list[Model], seconds: float) -> list[float]:
    each = await asyncio.gather(*(repeat(query, seconds) for query in handlers))
    return [took_ms for one in each for took_ms in one]


async def measure(variant: str, model: str, seconds: float) -> dict[str, float]:
    """I/O with one caller of the model, then eight callers at once."""
    if variant in ("none", "pool", "jitney"):  # where the model is in this process both share all cores
        os.environ["STORY_CORES"] = ",".join(map(str, work.cores()))
        work.leave_model_core()
    if variant == "none":
        async with queries() as handlers:
            took = await all_handlers(handlers, seconds)
        return {"io_p50_ms": quantile(took, 0.5), "io_p99_ms": quantile(took, 0.99), "wrong": 0}
    async with loaded(variant, model) as call, queries() as handlers:
        for _ in range(WARM_CALLS):
            await call("a text to warm up with")
        wrong = Wrong()
        calls = asyncio.create_task(repeat(call, seconds, wrong))
        took = await all_handlers(handlers, seconds)
        own = await calls
        begin = time.perf_counter()
        at_once = await asyncio.gather(*(repeat(call, seconds / 2, wrong) for _ in range(CALLERS)))
        items_s = sum(len(each) for each in at_once) / (time.perf_counter() - begin)
    return {
        "io_p50_ms": quantile(took, 0.5),
        "io_p99_ms": quantile(took, 0.99),
        "model_p50_ms": quantile(own, 0.5),
        "items_s": items_s,
        "wrong": wrong.count,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], sys.argv[2], float(sys.argv[3])))))
