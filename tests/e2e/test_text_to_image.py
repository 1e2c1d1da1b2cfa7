"""The pictures of `examples/text_to_image` behind a server: whole and in steps."""

import base64
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from harness import Serve

EXAMPLE = Path(__file__).parents[2] / "examples/text_to_image"
EVENTS, PNG = {"accept": "text/event-stream"}, {"accept": "image/png"}
WANTED: dict[str, Any] = {"prompt": "a red heart on a white background", "steps": 6, "seed": 1}

pytestmark = pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed")


def test_pictures_with_other_steps_and_sizes_share_a_replica(serve: Serve) -> None:
    server = serve(str(EXAMPLE / "steps.py"))
    changes = [{}, {"steps": 9}, {"guidance_scale": 1.5}, {"seed": 2, "steps": 12}, {"width": 48}, {"width": 64}]
    answers = [server.submit("/text_to_image", WANTED | change, PNG) for change in changes]
    together = [answer.result() for answer in answers]
    assert [answer.status for answer in together] == [200] * 5 + [422]
    alone = [server.post("/text_to_image", WANTED | change, PNG).body for change in changes[:5]]
    assert [answer.body for answer in together[:5]] == alone
    assert len(set(alone)) == 5

    streamed = server.post("/text_to_image", WANTED | {"partial_images": 3}, EVENTS).body.decode()
    *previews, end = streamed.strip().split("\n\n")
    assert len({base64.b64decode(json.loads(each.removeprefix("data: ")))[:4] for each in previews}) == 1
    assert len(previews) == 3
    answer = json.loads(end.splitlines()[1].removeprefix("data: "))["answer"]
    assert base64.b64decode(answer) == alone[0]


def test_a_batch_to_the_end_draws_the_same(serve: Serve) -> None:
    whole, steps = serve(str(EXAMPLE / "whole.py")), serve(str(EXAMPLE / "steps.py"))
    seeds = range(1, 5)
    answers = [whole.submit("/text_to_image", WANTED | {"seed": seed}, PNG) for seed in seeds]
    for seed, answer in zip(seeds, answers, strict=True):
        assert answer.result().body == steps.post("/text_to_image", WANTED | {"seed": seed}, PNG).body
