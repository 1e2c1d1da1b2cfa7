"""Story 4: 40 users ask for 10 tokens of a language model."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from stories import language, starting
from stories.clients import Load, Talk, run
from stories.story import Plot, Sample, Settings, Story, Target, Theirs, Variant, all_right, ratio

USERS = 40
SIZES_ALONE = (10, 20, 30, 40)
LOOP, BATCHED, OURS, CEILING = (
    "FastAPI, the model in its event loop",
    "FastAPI, batched by hand (50, 100 ms)",
    "jitney, defaults",
    "the model alone",
)
DOOR = starting.Door("/generate", json.dumps({"prompt": "the first"}).encode())


def question(number: int) -> bytes:
    return json.dumps({"prompt": f"prompt number {number}"}).encode()


def is_answer(number: int, answer: bytes) -> bool:
    """The sleeping model's tokens follow from the prompt."""
    prompt = f"prompt number {number}"
    return json.loads(answer) == {"prompt": prompt, "tokens": language.tokens_of(prompt)}


def looks_like_an_answer(number: int, answer: bytes) -> bool:
    """The computing model's do not: it must be about this prompt and have all tokens."""
    found = json.loads(answer)
    return found["prompt"] == f"prompt number {number}" and len(found["tokens"]) == language.TOKENS


def load(port: int, seconds: float, is_real: bool) -> Sample:
    talk = Talk("/generate", question, looks_like_an_answer if is_real else is_answer)
    return run(Load(port, talk, max(1.0, seconds / 3), seconds).closed(USERS)).sample()


def alone(folder: Path, seconds: float) -> Sample:
    """The computing model without a server, in the batches of which it computes most a second."""
    command = [sys.executable, "-c", ALONE, str(folder), str(seconds), ",".join(map(str, SIZES_ALONE))]
    environment = {**os.environ, "PYTHONPATH": starting.importing()}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    rps, size = ran.stdout.split()
    return Sample({"rps": float(rps), "batch": float(size)})


ALONE = """
import sys, time
from stories.language import Computing
model, seconds, sizes = Computing(sys.argv[1]), float(sys.argv[2]), [int(size) for size in sys.argv[3].split(",")]
best = (0.0, 0)
for size in sizes:
    prompts = [f"prompt number {n + 100}" for n in range(size)]
    model.generate(prompts)
    begin, batches = time.perf_counter(), 0
    while time.perf_counter() < begin + seconds / len(sizes):
        model.generate(prompts)
        batches += 1
    best = max(best, (size * batches / (time.perf_counter() - begin), size))
print(*best)
"""


def variants(environment: Mapping[str, str], seconds: float, is_real: bool) -> list[Variant]:
    def measured(start: Callable[[], starting.Started]) -> Callable[[], Sample]:
        return starting.under(lambda port: load(port, seconds, is_real), start)

    def baseline(variant: str) -> Callable[[], Sample]:
        return measured(lambda: starting.fastapi("tokens", DOOR, {**environment, "STORY_VARIANT": variant}))

    return [
        Variant(LOOP, "baseline", baseline("loop")),
        Variant(BATCHED, "baseline", baseline("batched")),
        Variant(OURS, "jitney", measured(lambda: starting.jitney("tokens", DOOR, environment))),
    ]


def ceiling_of_cost() -> Sample:
    return Sample({"rps": USERS / (language.BASE_S + USERS * language.ITEM_S)})


def sleeping(settings: Settings) -> Story:
    return Story(
        key="4",
        name="40 users, 10 tokens from a model of 125M",
        what="40 users ask again as soon as they are answered; batches of at most 50.",
        scaled="The model sleeps 23 ms + 1.8 ms per prompt: their 40 requests/s one at a time, 404 in batches of 40. "
        "Time is not scaled.",
        theirs=Theirs("as its author measured it, a server in Rust (FastAPI: 40)", {"rps": 404}),
        variants=[
            *variants({}, settings.seconds / 2, is_real=False),
            Variant(CEILING, "ceiling", ceiling_of_cost, "computed, batches of 40"),
        ],
        targets=[
            Target("requests/s / FastAPI whose loop the model blocks", 10, False, ratio("rps", OURS, LOOP)),
            Target("requests/s / FastAPI batched by hand", 1.8, False, ratio("rps", OURS, BATCHED)),
            Target("requests/s / the model's own ceiling", 0.95, False, ratio("rps", OURS, CEILING)),
            all_right(),
        ],
        compared=(OURS, BATCHED),
        plot=Plot("percentile of requests", "latency, ms"),
        share=0.09,
    )


def real(settings: Settings) -> Story:
    folder = settings.folder / "opt-125m"
    is_there = importlib.util.find_spec("ctranslate2") is not None

    def prepare() -> None:
        if not (folder / "model.bin").exists():
            command = [sys.executable, "-m", "stories.language", str(folder)]
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": starting.importing()})

    environment = {"STORY_OPT_FOLDER": str(folder)}
    seconds = max(6.0, settings.seconds * 0.6)
    found = [
        *variants(environment, seconds, is_real=True),
        Variant(CEILING, "ceiling", lambda: alone(folder, seconds), "without a server, in batches of the best size"),
    ]
    return Story(
        key="4-opt",
        name="the same with a model that computes",
        what="Random weights in the shape of OPT-125m, 8-bit integers, CTranslate2 on one thread; 40 users, 10 tokens.",
        scaled="The weights are random, their shape and cost are not. On a CPU a batch gains less than on their GPU, "
        "so the bounds of the sleeping model do not apply. The bound of the model's own maximum does.",
        theirs=Theirs("as its author measured it, a server in Rust (FastAPI: 40)", {"rps": 404}),
        variants=found if is_there else [],
        targets=[
            Target("requests/s / the model's own ceiling", 0.95, False, ratio("rps", OURS, CEILING)),
            Target("requests/s / FastAPI batched by hand", 1, False, ratio("rps", OURS, BATCHED)),
            all_right(),
        ],
        compared=(OURS, BATCHED),
        plot=Plot("percentile of requests", "latency, ms"),
        share=0.13,
        missing="" if is_there else "ctranslate2 is not installed",
        prepare=prepare,
    )


def stories(settings: Settings) -> list[Story]:
    return [sleeping(settings), real(settings)]
