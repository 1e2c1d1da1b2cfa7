"""The application of `examples/text_to_image`: five endpoints, plain and streamed, synchronous and asynchronous."""

import base64
import importlib
import importlib.util
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

if importlib.util.find_spec("onnxruntime") is None:
    pytest.skip("onnxruntime is not installed", allow_module_level=True)

EXAMPLE = Path(__file__).parents[2] / "examples/text_to_image"
WANTED = {"prompt": "a red heart on a white background", "width": 48, "inference_steps": 10, "seed": 3}
PLAIN, STREAMED = ["/images", "/images/sync"], ["/images/stream", "/images/sync/stream"]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    with TestClient(importlib.import_module("app").app) as client:
        yield client


def decoded(image: str) -> Any:
    found = Image.open(io.BytesIO(base64.b64decode(image)))
    return found.size, found.tobytes()


def events(text: str) -> list[tuple[str, Any]]:
    pairs = [block.split("\n", 1) for block in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pairs]


def test_every_endpoint_draws_the_same(client: TestClient) -> None:
    answer = client.post("/image", json=WANTED)
    assert answer.headers["content-type"] == "image/png"
    first = decoded(base64.b64encode(answer.content).decode())
    assert first[0] == (48, 32)
    answers = [client.post(path, json=WANTED | {"n": 3}).json() for path in PLAIN]
    assert answers[0] == answers[1]
    assert answers[0]["seeds"] == [3, 4, 5]
    assert len({decoded(image)[1] for image in answers[0]["images"]}) == 3
    assert decoded(answers[0]["images"][0]) == first
    for path in STREAMED:
        found = events(client.post(path, json=WANTED | {"n": 3}).text)
        assert [name for name, _ in found].count("preview") == 3 * 8
        last = {data["index"]: data for name, data in found if name == "image"}
        assert [last[index]["seed"] for index in range(3)] == [3, 4, 5]
        assert [decoded(last[index]["image"]) for index in range(3)] == list(map(decoded, answers[0]["images"]))


def test_a_negative_prompt_and_guidance_change_the_picture(client: TestClient) -> None:
    changes: list[dict[str, Any]] = [{}, {"negative_prompt": "a blue heart"}, {"guidance_scale": 1.0}, {"seed": 4}]
    images = [client.post("/images", json=WANTED | change).json()["images"][0] for change in changes]
    assert len(set(images)) == 4


@pytest.mark.parametrize("path", ["/image", *PLAIN, *STREAMED])
def test_other_sizes_are_refused_with_a_reason(client: TestClient, path: str) -> None:
    answer = client.post(path, json=WANTED | {"width": 40})
    assert (answer.status_code, answer.headers["x-jitney-reason"]) == (422, "invalid_input")
    assert "48 x 32" in answer.text


def test_the_page_calls_an_endpoint_that_is_there(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert 'fetch("/images/stream"' in page.text
    paths = client.get("/openapi.json").json()["paths"]
    assert sorted(paths) == sorted(["/image", *PLAIN, *STREAMED])
