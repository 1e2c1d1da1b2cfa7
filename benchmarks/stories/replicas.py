"""Story 3: how much more do R replicas answer than one?"""

import importlib.util
import json
from collections.abc import Callable

from stories import starting
from stories.clients import Load, Talk, run
from stories.story import Medians, Plot, Sample, Settings, Story, Target, Theirs, Variant, all_right

COUNTS, RAY_COUNTS = (1, 2, 4, 8, 16), (1, 4, 8)
BATCH_S, SIZE = 0.2, 8
USERS_PER_REPLICA = 2 * SIZE
DOOR = starting.Door("/upper", json.dumps({"text": "the first"}).encode())


def question(number: int) -> bytes:
    return json.dumps({"text": f"text number {number}"}).encode()


def is_answer(number: int, answer: bytes) -> bool:
    return json.loads(answer) == {"text": f"TEXT NUMBER {number}"}


TALK = Talk("/upper", question, is_answer)


def named(system: str, count: int) -> str:
    return f"{system}, {count} replica{'s' if count > 1 else ''}"


def load(port: int, count: int, seconds: float) -> Sample:
    figures = run(Load(port, TALK, 2.0, seconds).closed(USERS_PER_REPLICA * count)).figures()
    figures["of_ceiling"] = figures["rps"] / (count * SIZE / BATCH_S)
    return Sample(figures, [(count, figures["rps"])])


def least_efficiency(system: str) -> Callable[[Medians], float]:
    """The worst of (R replicas) / (R times one replica), over all R."""

    def value(medians: Medians) -> float:
        one = medians[named(system, 1)]["rps"]
        return min(medians[named(system, count)]["rps"] / (count * one) for count in COUNTS)

    return value


def stories(settings: Settings) -> list[Story]:
    seconds = max(2.0, settings.seconds / 4)
    has_ray = importlib.util.find_spec("ray") is not None

    def measured(count: int, start: Callable[[], starting.Started]) -> Callable[[], Sample]:
        return starting.under(lambda port: load(port, count, seconds), start)

    def ours(count: int) -> Callable[[], Sample]:
        return measured(count, lambda: starting.jitney("replicas", DOOR, {}, f"upper.replicas={count}"))

    def rays(count: int) -> Callable[[], Sample]:
        return measured(count, lambda: starting.ray("replicas", DOOR, count))

    variants = [Variant(named("jitney", count), "jitney", ours(count), line="jitney") for count in COUNTS]
    if has_ray:
        variants += [
            Variant(named("Ray Serve", count), "baseline", rays(count), line="Ray Serve") for count in RAY_COUNTS
        ]
    return [
        Story(
            key="3",
            name="replicas",
            what="Batches of up to 8; 16 users per replica ask again at once; all on one machine.",
            scaled="A batch sleeps 0.2 s, so that replicas do not fight for the cores: theirs had a core each, 60 "
            "times one on 128 cores. One machine, 16 replicas at most.",
            theirs=Theirs("as its author measured it, 128 replicas on 128 cores: 60 times one", {}),
            variants=variants,
            targets=[
                Target("R replicas / (R x one replica), worst of 1 to 16", 0.95, False, least_efficiency("jitney")),
                all_right(),
            ],
            compared=(named("jitney", RAY_COUNTS[-1]), named("Ray Serve", RAY_COUNTS[-1])),
            plot=Plot("replicas", "requests/s"),
            share=0.18,
            missing="" if has_ray else "Ray is not installed: jitney alone",
        )
    ]
