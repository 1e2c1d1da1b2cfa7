"""Story 2: I/O of 5 ms beside a model, in one program."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable

from stories import starting
from stories.story import Medians, Plot, Sample, Settings, Story, Target, Theirs, Variant, all_right, ratio

ALONE, LOOP, THREAD, POOL, OURS = (
    "I/O alone",
    "the model in the event loop",
    "the model in a thread",
    "the model in a process pool",
    "jitney.run, defaults",
)
VARIANTS = {ALONE: "none", LOOP: "loop", THREAD: "thread", POOL: "pool", OURS: "jitney"}
TOLD = {
    "sleeping": (
        "a model that sleeps",
        "The model sleeps 42 ms: behind it I/O of 5 ms takes their 47 ms in a blocked loop.",
    ),
    "computing": (
        "a model that computes in Python",
        "The model computes in Python for 42 ms, holding the interpreter lock: where their thread was slow.",
    ),
    "minilm": ("MiniLM", ""),
}


def program(variant: str, model: str, seconds: float) -> Callable[[], Sample]:
    def measure() -> Sample:
        command = [sys.executable, "-m", "stories.program", variant, model, str(seconds)]
        environment = {**os.environ, "PYTHONPATH": starting.importing()}
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)
        if ran.returncode != 0:
            raise RuntimeError(ran.stderr[-2000:])
        figures = json.loads(ran.stdout.splitlines()[-1])
        return Sample(figures, [(50, figures["io_p50_ms"]), (99, figures["io_p99_ms"])])

    return measure


def above_its_own(medians: Medians) -> float:
    """The model alone in a blocked loop, where nothing disturbs it."""
    return medians[OURS]["model_p50_ms"] - medians[LOOP]["model_p50_ms"]


def stories(settings: Settings) -> list[Story]:
    seconds = settings.seconds / 5
    found: list[Story] = []
    for model, (name, scaled) in TOLD.items():
        is_there = model != "minilm" or importlib.util.find_spec("onnxruntime") is not None
        variants = [
            Variant(
                told,
                "jitney" if told == OURS else "ceiling" if told == ALONE else "baseline",
                program(variant, model, seconds),
            )
            for told, variant in VARIANTS.items()
        ]
        found.append(
            Story(
                key=f"2-{model}",
                name=f"I/O of 5 ms beside {name}",
                what="Eight handlers whose I/O takes 5 ms and one caller of the model, in one event loop; then eight "
                "callers at once (items_s). With the pool and with jitney the model has the last core, the loop the "
                "others.",
                scaled=scaled,
                theirs=Theirs(
                    "as its author measured it, the loop blocked (a thread: 5 ms, but the model 4 times slower; a "
                    "process pool: 5 ms, the model 1 to 3 ms slower)",
                    {"io_p50_ms": 47},
                ),
                variants=variants if is_there else [],
                targets=[
                    Target("I/O p99 / I/O alone", 1.1, True, ratio("io_p99_ms", OURS, ALONE)),
                    Target("the model's p50 above its own, ms", 0.3, True, above_its_own),
                    Target("calls at once / process pool", 1, False, ratio("items_s", OURS, POOL)),
                    all_right("wrong"),
                ],
                compared=(OURS, POOL),
                plot=Plot("percentile of I/O", "latency, ms"),
                share=0.06,
                missing="" if is_there else "onnxruntime is not installed",
            )
        )
    return found
