"""Story 5: 250 requests a second, steadily; when is a batch closed?"""

import json
from collections.abc import Callable

from stories import starting
from stories.clients import Load, Outcome, Talk, run
from stories.story import Plot, Sample, Settings, Story, Target, Theirs, Variant, all_right, ratio

RATE, SECONDS, WARM_S = 250, 12.0, 0.5
# One at a time takes 3.94 ms: with the arrivals of this seed a queue that takes one at a time has a p50 of 166 ms and a
# p95 of 408 ms, where theirs had 160 and 400. What a batch gains is not in their figures: half of that is launch cost.
SEED, BASE_S, ITEM_S = 73, 0.00197, 0.00197
WAIT_MS, SIZE = 10, 32
UNBATCHED, WAIT, EAGER, OURS = (
    "FastAPI, one at a time",
    f"FastAPI, wait {WAIT_MS} ms",
    "FastAPI, eager: when the accelerator is free",
    "jitney, defaults",
)


def question(number: int) -> bytes:
    return json.dumps({"text": f"text number {number}"}).encode()


def is_answer(number: int, answer: bytes) -> bool:
    return json.loads(answer) == {"text": f"TEXT NUMBER {number}"}


DOOR = starting.Door("/upper", json.dumps({"text": "the first"}).encode())
TALK = Talk("/upper", question, is_answer)


async def offered(port: int) -> Outcome:
    """Accustom the server to the load, wait until its queue is empty, then offer what is measured."""
    await Load(port, TALK, 0, 2.0).steady(RATE / 2, SEED + 1)
    return await Load(port, TALK, WARM_S, SECONDS).steady(RATE, SEED)


def load(port: int) -> Sample:
    return run(offered(port)).sample()


def stories(settings: Settings) -> list[Story]:
    del settings  # the calibration is of these arrivals: they last as long as they last

    def baseline(variant: str) -> Callable[[], Sample]:
        return starting.under(load, lambda: starting.fastapi("steady", DOOR, {"STORY_VARIANT": variant}))

    return [
        Story(
            key="5",
            name="250 requests a second, steadily",
            what=f"Poisson arrivals at {RATE} a second for {SECONDS:.0f} s, the same instants for every server; "
            f"batches of at most {SIZE}.",
            scaled="The model sleeps 1.97 ms + 1.97 ms per item. The sum and the arrivals are chosen so that one at a "
            "time gives their p50 and p95 (166 and 408 ms by computation); how much a batch gains is not known of "
            "theirs, half of one item's time is on the low side. Time is not scaled.",
            theirs=Theirs(
                "as its author measured it, eager (one at a time: p50 160 ms, p95 400 ms)",
                {"p50_ms": 100, "p95_ms": 240},
            ),
            variants=[
                Variant(UNBATCHED, "baseline", baseline("unbatched")),
                Variant(WAIT, "baseline", baseline("wait")),
                Variant(EAGER, "baseline", baseline("eager")),
                Variant(OURS, "jitney", starting.under(load, lambda: starting.jitney("steady", DOOR, {}))),
            ],
            targets=[
                Target("p50 / one at a time", 0.6, True, ratio("p50_ms", OURS, UNBATCHED)),
                Target("p95 / one at a time", 0.6, True, ratio("p95_ms", OURS, UNBATCHED)),
                Target("p50 / eager", 1, True, ratio("p50_ms", OURS, EAGER)),
                Target("p95 / eager", 1, True, ratio("p95_ms", OURS, EAGER)),
                all_right(),
            ],
            compared=(OURS, UNBATCHED),
            plot=Plot("percentile of requests", "latency, ms"),
            share=0.15,
        )
    ]
