"""Story 1 with the diffusion model of `examples/text_to_image`: FastAPI alone, its application, and `jitney serve`."""

import base64
import importlib.util
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from stories import starting
from stories.clients import Load, Talk, quantile, run
from stories.story import Plot, Sample, Settings, Story, Target, Theirs, Variant, all_right, ratio

USERS, PREVIEWS = 8, 8
EXAMPLE = starting.ROOT / "examples/text_to_image"
WANTED = [
    {"prompt": f"a {colour} {shape} on a white background", "negative_prompt": "a yellow square", "seed": seed}
    for seed, (colour, shape) in enumerate(
        (colour, shape) for colour in ("red", "blue") for shape in ("heart", "cross", "circle", "square")
    )
]
"""What the users ask for in turn, so each picture is drawn several times."""
ALIKE = {"guidance_scale": 3.0, "width": 32, "height": 32}
STEPS = 20
BY_HAND, APPLICATION, WHOLE, IN_STEPS = (
    "FastAPI, one at a time",
    "jitney in FastAPI",
    "jitney serve, whole",
    "jitney serve, in steps",
)


class Way(NamedTuple):
    """One way to get a picture from a server."""

    path: str
    file: Callable[[bytes], bytes]
    """The PNG file in an answer."""
    steps: str = "inference_steps"
    """The field with the number of steps."""
    fields: tuple[tuple[str, int], ...] = ()
    accept: str = "*/*"
    is_streamed: bool = False

    def question(self, number: int) -> bytes:
        return json.dumps(WANTED[number % len(WANTED)] | ALIKE | {self.steps: STEPS} | dict(self.fields)).encode()

    def is_answer(self, number: int, answer: bytes) -> bool:
        try:
            return pixels(self.file(answer)) == drawn()[number % len(WANTED)]
        except (OSError, ValueError, KeyError, IndexError):
            return False


def first_image(answer: bytes) -> bytes:
    return base64.b64decode(json.loads(answer)["images"][0])


def last_event(answer: bytes) -> tuple[str, Any]:
    """The name and the data of the last event, after as many previews as were asked for."""
    *previews, last = answer.decode().strip().split("\n\n")
    if len(previews) != PREVIEWS:
        raise ValueError(f"{len(previews)} previews, not {PREVIEWS}")
    name, data = last.split("\n", 1)
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def image_event(answer: bytes) -> bytes:
    name, data = last_event(answer)
    return base64.b64decode(data["image"]) if name == "image" else b""


def end_event(answer: bytes) -> bytes:
    name, data = last_event(answer)
    return base64.b64decode(data["answer"]) if name == "end" else b""


SERVED = Way("/text_to_image", bytes, "steps", accept="image/png")
PLAIN, STREAMED = Way("/image", bytes), Way("/images/stream", image_event, is_streamed=True)
WAYS: dict[str, list[Way]] = {
    BY_HAND: [PLAIN, STREAMED],
    APPLICATION: [
        PLAIN,
        Way("/images", first_image, fields=(("n", 1),)),
        Way("/images/sync", first_image, fields=(("n", 1),)),
        STREAMED,
        STREAMED._replace(path="/images/sync/stream"),
    ],
    WHOLE: [SERVED],
    IN_STEPS: [
        SERVED,
        Way(
            "/text_to_image", end_event, "steps", (("partial_images", PREVIEWS),), "text/event-stream", is_streamed=True
        ),
    ],
}


def start(server: str) -> starting.Started:
    """Start one of the four servers."""
    way = WAYS[server][0]
    door, environment = starting.Door(way.path, way.question(0)), {"PYTHONPATH": starting.importing(EXAMPLE)}
    if server == BY_HAND:
        return starting.fastapi("drawing", door, environment)
    if server == APPLICATION:
        return starting.uvicorn("app:app", door, environment)
    return starting.serve(EXAMPLE / ("whole.py" if server == WHOLE else "steps.py"), door, environment)


@cache
def drawn() -> list[Any]:
    """The pixels of what the users ask for, each drawn alone."""
    environment = {**os.environ, "PYTHONPATH": starting.importing(EXAMPLE)}
    command = [sys.executable, "-c", ALONE, json.dumps([one | ALIKE | {"steps": STEPS} for one in WANTED])]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return [pixels(base64.b64decode(line)) for line in ran.stdout.split()]


ALONE = """
import base64, json, sys
from diffusion import Denoiser, begin, image
from prompt import Prompt
denoiser = Denoiser()
for wanted in json.loads(sys.argv[1]):
    picture = begin(Prompt(**wanted))
    while not picture.is_done:
        denoiser.step([picture])
    print(base64.b64encode(image(picture.pixels).encode()).decode())
"""


def pixels(file: bytes) -> Any:
    """Size and colours: two encoders may write one picture as different files."""
    from PIL import Image  # noqa: PLC0415  the tests of other stories do without

    picture = Image.open(io.BytesIO(file)).convert("RGB")
    return picture.size, picture.tobytes()


def load(port: int, way: Way, seconds: float) -> Sample:
    talk = Talk(way.path, way.question, way.is_answer, way.accept)
    outcome = run(Load(port, talk, seconds / 4, seconds).closed(USERS))
    found = outcome.figures()
    figures = {"images_s": found["rps"], "p50_ms": found["p50_ms"], "p95_ms": found["p95_ms"]}
    if way.is_streamed:
        figures["first_p50_ms"] = quantile(outcome.first_ms, 0.5)
    return Sample(figures | {"wrong": found["wrong"], "missing": found["missing"]}, outcome.curve())


def named(server: str, way: Way) -> str:
    if server in (WHOLE, IN_STEPS):
        return f"{server}, streamed" if way.is_streamed else server
    return f"{server}: {way.path}"


def stories(settings: Settings) -> list[Story]:
    seconds = max(1.0, settings.seconds / 3)

    def variant(server: str, way: Way) -> Variant:
        measure = starting.under(lambda port: load(port, way, seconds), lambda: start(server))
        return Variant(named(server, way), "baseline" if server == BY_HAND else "jitney", measure)

    is_there = importlib.util.find_spec("onnxruntime") is not None
    by_hand, by_hand_streamed = (named(BY_HAND, way) for way in WAYS[BY_HAND])
    return [
        Story(
            key="1-drawing",
            name="text to image with a model that computes, 8 users",
            what="Eight users who ask again at once for pictures of 32 x 32 pixels in 20 steps, of the diffusion model "
            "of `examples/text_to_image`; `first_`: until the first of 8 previews. Each picture is compared with the "
            "one of the same prompt and seed, drawn alone.",
            scaled="Nothing. The model is small and computes on the cores that server and clients use too: a batch "
            "of 8 saves about a third of the time per picture, and not nearly all of it as on a GPU.",
            theirs=Theirs("not with this model", {}),
            variants=[variant(server, way) for server, ways in WAYS.items() for way in ways] if is_there else [],
            targets=[
                Target("images/s in steps / one at a time", 1, False, ratio("images_s", IN_STEPS, by_hand)),
                Target(
                    "first preview of the application / one at a time",
                    0.5,
                    True,
                    ratio("first_p50_ms", named(APPLICATION, STREAMED), by_hand_streamed),
                ),
                all_right(),
            ],
            compared=(IN_STEPS, by_hand),
            plot=Plot("percentile of pictures", "latency, ms"),
            share=0.1,
            missing="" if is_there else "onnxruntime is not installed",
            prepare=lambda: drawn() and None,
        )
    ]
