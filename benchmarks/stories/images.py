"""Story 1: text to image, for 1 user and for 8 of whom one more comes every 50 s."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stories import starting
from stories.clients import quantile
from stories.story import (
    Figures,
    Medians,
    Plot,
    Points,
    Sample,
    Settings,
    Story,
    Target,
    Theirs,
    Variant,
    all_right,
    ratio,
)

RUN_S, STEP_S, USERS = 600.0, 50.0, 8
THEIR_SETTINGS = ((8, 0.5), (4, 0.5), (16, 0.5), (8, 0.25), (8, 1.0))
"""Largest batch and wait in seconds: what its author chose first, then each off by two."""
DOOR = starting.Door("/text_to_image", json.dumps({"prompt": "the first"}).encode())
ONE_AT_A_TIME, OURS = "one at a time", "jitney, no settings"
BIN_S = 25.0


@dataclass(frozen=True)
class Crowd:
    """Who asks, and for what; seconds are those of the story."""

    users: int = USERS
    run_s: float = RUN_S
    sizes: str = "grouped"
    path: str = "/text_to_image"


def named(size: int, wait_s: float) -> str:
    return f"batch {size}, wait {wait_s * 1e3:.0f} ms"


def scale(settings: Settings) -> float:
    """How many times faster than in the story time passes."""
    return RUN_S / max(12.0, settings.seconds)


def figures(lines: list[dict[str, Any]], crowd: Crowd, faster: float) -> Figures:
    """Figures in the time of the story; those of all users together count from the arrival of the last."""
    took_s = [(line["done_s"] - line["sent_s"]) * faster for line in lines]
    last_s = (crowd.users - 1) * STEP_S
    late_s = [took for took, line in zip(took_s, lines, strict=True) if line["sent_s"] * faster >= last_s]
    done_late = sum(line["done_s"] * faster >= last_s for line in lines)
    return {
        "images_s": len(lines) / crowd.run_s,
        "p50_s": quantile(took_s, 0.5),
        "p99_s": quantile(took_s, 0.99),
        "all_images_s": done_late / (crowd.run_s - last_s),
        "all_p50_s": quantile(late_s, 0.5),
        "all_p99_s": quantile(late_s, 0.99),
        "batch": sum(line.get("items", 0) for line in lines) / max(len(lines), 1),
        "mixed": sum(line.get("groups", 1) > 1 for line in lines),
        "wrong": sum(not line["is_right"] for line in lines),
    }


def over_time(lines: list[dict[str, Any]], faster: float) -> Points:
    """Median latency of the pictures done in each `BIN_S`."""
    bins: dict[int, list[float]] = {}
    for line in lines:
        took_s = (line["done_s"] - line["sent_s"]) * faster
        bins.setdefault(int(line["done_s"] * faster / BIN_S), []).append(took_s)
    return [((number + 0.5) * BIN_S, quantile(took, 0.5)) for number, took in sorted(bins.items())]


def locust(port: int, crowd: Crowd, faster: float) -> list[dict[str, Any]]:
    """Let the crowd of `locustfile.py` ask; what each picture was."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "pictures"
        environment = {
            **os.environ,
            "PYTHONPATH": starting.importing(),
            "STORY_STEP_S": str(STEP_S / faster),
            "STORY_RUN_S": str(crowd.run_s / faster),
            "STORY_SIZES": crowd.sizes,
            "STORY_PATH": crowd.path,
            "STORY_RECORD": str(record),
        }
        command = [
            sys.executable, "-m", "locust", "--locustfile", str(starting.HERE / "locustfile.py"), "--headless",
            "--users", str(crowd.users), "--spawn-rate", "100", "--host", f"http://127.0.0.1:{port}",
            "--only-summary", "--loglevel", "WARNING", "--exit-code-on-error", "0",
        ]  # fmt: skip
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=crowd.run_s / faster + 60
        )
        if ran.returncode != 0 or not record.exists():
            raise RuntimeError(f"locust failed:\n{ran.stderr[-2000:]}")
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        return [line for line in lines if line["done_s"] * faster <= crowd.run_s]


def load(port: int, crowd: Crowd, faster: float) -> Sample:
    lines = locust(port, crowd, faster)
    return Sample(figures(lines, crowd, faster), over_time(lines, faster))


def best_of_theirs(metric: str, best: Callable[[list[float]], float]) -> Callable[[Medians], float]:
    def value(medians: Medians) -> float:
        return medians[OURS][metric] / best([medians[named(*setting)][metric] for setting in THEIR_SETTINGS])

    return value


def own_ratio(metric: str, other: str) -> Callable[[Medians], float]:
    return lambda medians: medians[OURS][metric] / medians[OURS][other]


def mixed(medians: Medians) -> float:
    return medians[f"mixed sizes: {OURS}"]["mixed"]


def stories(settings: Settings) -> list[Story]:
    faster = scale(settings)
    one, several, streamed = (
        Crowd(users=1, run_s=100),
        Crowd(sizes="mixed"),
        Crowd(path="/text_to_image/stream", run_s=450),
    )

    def measured(crowd: Crowd, start: Callable[[], starting.Started]) -> Callable[[], Sample]:
        return starting.under(lambda port: load(port, crowd, faster), start)

    def theirs(size: int, wait_s: float, crowd: Crowd) -> Callable[[], Sample]:
        chosen = {"STORY_SCALE": str(faster), "STORY_SIZE": str(size), "STORY_WAIT_S": str(wait_s / faster)}
        return measured(crowd, lambda: starting.fastapi("images", DOOR, chosen))

    def ours(crowd: Crowd) -> Callable[[], Sample]:
        environment = {"STORY_SCALE": str(faster)}
        return measured(crowd, lambda: starting.jitney("images", DOOR, environment))

    chosen = THEIR_SETTINGS[0]
    return [
        Story(
            key="1",
            name="text to image, 8 users",
            what="Locust, ten minutes of the story: one more user every 50 s, up to 8, who ask again at once; `all_`: "
            "from the arrival of the last; pictures share a batch only if width, height, steps and guidance agree.",
            scaled=f"Time passes {faster:.0f} times faster, for users, waits and the model; figures are in "
            "the time of the story. The model sleeps 2.95 s + 0.36 s per image: computed for the same crowd, that "
            "is 0.30 images/s and 19.8 s one at a time, 1.01 and 5.8 s in batches.",
            theirs=Theirs(
                "as its author measured it, batched (one at a time: 0.3 images/s, p50 20.7 s)",
                {"images_s": 1.1, "p50_s": 5.9, "p99_s": 12},
            ),
            variants=[
                Variant(ONE_AT_A_TIME, "baseline", theirs(1, 0, Crowd())),
                *(Variant(named(*one), "baseline", theirs(*one, Crowd())) for one in THEIR_SETTINGS),
                Variant(OURS, "jitney", ours(Crowd())),
                Variant(f"1 user: {ONE_AT_A_TIME}", "baseline", theirs(1, 0, one)),
                Variant(f"1 user: {named(*chosen)}", "baseline", theirs(*chosen, one)),
                Variant(f"1 user: {OURS}", "jitney", ours(one)),
                Variant(f"mixed sizes: {named(*chosen)}", "baseline", theirs(*chosen, several)),
                Variant(f"mixed sizes: {OURS}", "jitney", ours(several)),
                Variant(f"streamed in chunks: {named(*chosen)}", "baseline", theirs(*chosen, streamed)),
            ],
            targets=[
                Target("images/s / the best of their five settings", 1, False, best_of_theirs("images_s", max)),
                Target("p50 / the best of their five settings", 1, True, best_of_theirs("p50_s", min)),
                Target("the same, all 8 users there", 1, True, best_of_theirs("all_p50_s", min)),
                Target("p99 / p50, the whole run", 1.3, True, own_ratio("p99_s", "p50_s")),
                Target("p99 / p50, all 8 users there", 1.3, True, own_ratio("all_p99_s", "all_p50_s")),
                Target(
                    "p50 of 1 user / one at a time",
                    1.02,
                    True,
                    ratio("p50_s", f"1 user: {OURS}", f"1 user: {ONE_AT_A_TIME}"),
                ),
                Target("pictures that shared a batch with another size", 0, True, mixed),
                all_right("wrong"),
            ],
            compared=(OURS, named(*chosen)),
            plot=Plot("time in the story, s", "median latency, s"),
            share=0.37,
        )
    ]
