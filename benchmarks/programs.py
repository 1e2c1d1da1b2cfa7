"""Programs with a model inside, each as its author would write it; prints figures as JSON.

    python benchmarks/programs.py PROGRAM VARIANT SECONDS

A variant is where the model runs: `loop` (in the event loop), `thread`, `pool` (a process), `jitney` (an engine in this
process), `connect` (one of a server), `none` (no model at all).
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import jitney

APP = Path(__file__).resolve().parent / "apps/program.py"
sys.path.insert(0, str(APP.parent))
import program  # noqa: E402  the folder is known only now
from stories.program import measure as program_of_story  # noqa: E402

Model = Callable[[str], Awaitable[str]]
TEXT = "a text of fifty-seven characters, as every server here gets"


@asynccontextmanager
async def models(variant: str, function: Callable[[str], str], name: str) -> AsyncIterator[Model]:
    """The same model, where the variant has it."""
    loop = asyncio.get_running_loop()
    if variant == "jitney":
        async with jitney.run(str(APP)) as found:
            yield found[name]
    elif variant == "connect":
        with tempfile.TemporaryDirectory() as folder:
            place = f"unix:{folder}/programs"
            command = [sys.executable, "-m", "jitney", "serve", str(APP), "--port", "0", "--listen-programs", place]
            server = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
            try:
                async with jitney.connect(place) as found:
                    yield found[name]
            finally:
                server.terminate()
                server.wait()
    elif variant == "pool":
        with ProcessPoolExecutor(1) as pool:
            yield lambda text: loop.run_in_executor(pool, function, text)
    elif variant == "thread":
        yield lambda text: asyncio.to_thread(function, text)
    else:

        async def in_loop(text: str) -> str:
            answer = function(text)
            await asyncio.sleep(0)  # as a server does between two requests
            return answer

        yield in_loop


async def alone(variant: str, seconds: float) -> dict[str, float]:
    """One call at a time."""
    async with models(variant, str, "noop") as model:
        took = await repeat(model, seconds, warm=300)
        return {"p50_ms": quantile(took, 0.5), "p99_ms": quantile(took, 0.99)}


async def at_once(variant: str, seconds: float) -> dict[str, float]:
    """64 callers, each with one call in flight."""
    function, name = (program.alone, "sleepy") if PROGRAM == "batches" else (str, "noop")
    async with models(variant, function, name) as model:
        await asyncio.gather(*(repeat(model, 0.5) for _ in range(64)))
        begin = time.perf_counter()
        counts = await asyncio.gather(*(repeat(model, seconds) for _ in range(64)))
        took = [one for each in counts for one in each]
        return {"rps": len(took) / (time.perf_counter() - begin), "p50_ms": quantile(took, 0.5)}


async def beside(variant: str, seconds: float) -> dict[str, float]:
    """Eight handlers whose I/O takes 5 ms, and one caller of a model on a separate core: story 2."""
    return await program_of_story(variant, "computing", seconds)


async def repeat(call: Model, seconds: float, warm: int = 0) -> list[float]:
    """Call again and again; how long each took, in ms."""
    for _ in range(warm):
        await call(TEXT)
    took: list[float] = []
    now = time.perf_counter()
    end = now + seconds
    while now < end:
        begin = now
        await call(TEXT)
        now = time.perf_counter()
        took.append((now - begin) * 1e3)
    return took


def quantile(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]


async def smollm2(variant: str, seconds: float) -> dict[str, float]:
    """A language model: its engine alone, or behind HTTP."""
    import smollm2  # noqa: PLC0415  imports the model's package

    return smollm2.measure(variant, seconds)


PROGRAMS = {"smollm2": smollm2, "alone": alone, "at_once": at_once, "batches": at_once, "beside": beside}
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""

if __name__ == "__main__":
    print(json.dumps(asyncio.run(PROGRAMS[PROGRAM](sys.argv[2], float(sys.argv[3])))))
