"""Record the timings that the timeline is drawn from: a real model, a real engine, requests at fixed times."""

import asyncio
import json
import re
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from site_pictures.timeline import ARRIVALS_MS, ITEM_MS, LAUNCH_MS, RECORD, Timing

MODEL = f"""
import time
import jitney

@jitney.deployment(max_batch_size=16, examples=["a"])
def sleeper(texts: list[str]) -> list[str]:
    time.sleep({LAUNCH_MS / 1000} + {ITEM_MS / 1000} * len(texts))
    return texts
"""
DURATION = re.compile(r"(\w+);dur=([\d.]+)")


def ask(port: int, start_s: float) -> Timing:
    arrived_s = time.perf_counter()
    body = urllib.request.Request(f"http://127.0.0.1:{port}/sleeper", b'"a"', {"content-type": "application/json"})
    with urllib.request.urlopen(body, timeout=20) as answer:
        answer.read()
        durations = {name: float(value) for name, value in DURATION.findall(answer.headers["server-timing"])}
        return {
            "arrived_ms": round((arrived_s - start_s) * 1000, 1),
            "queue_ms": round(durations["queue"], 1),
            "run_ms": round(durations["batch"] + durations["model"], 1),
            "batch_size": int(answer.headers["x-jitney-batch-size"]),
        }


def ask_all(port: int) -> list[Timing]:
    start_s = time.perf_counter() + 0.1

    def at(arrival_ms: float) -> Timing:
        time.sleep(max(0, start_s + arrival_ms / 1000 - time.perf_counter()))
        return ask(port, start_s)

    with ThreadPoolExecutor(len(ARRIVALS_MS)) as pool:
        return list(pool.map(at, ARRIVALS_MS))


async def record() -> None:
    """Serve the model, ask once to be warm, and record the second time."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sleeper.py").write_text(MODEL)
        arguments = ["-m", "jitney", "serve", "sleeper.py", "--port", "0"]
        server = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=folder, stderr=asyncio.subprocess.PIPE
        )
        assert server.stderr
        port = 0
        async for line in server.stderr:
            if found := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                port = int(found[1])
            if port and b"ready" in line:
                break
        ask_all(port)
        requests = ask_all(port)
        server.terminate()
        await server.communicate()
    words = f"a model of {LAUNCH_MS} ms and {ITEM_MS} ms per item, one replica, the default policy"
    RECORD.write_text(json.dumps({"what": words, "requests": requests}, indent=1) + "\n")
