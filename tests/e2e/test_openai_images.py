"""The official Python client against `/v1/images/generations`."""

import base64
from collections.abc import Iterator
from typing import Any

import jitney
import openai
import pytest
from harness import Server, serving
from openai_clients import client_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory, "painting.py") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client


def opened(encoded: str | None) -> tuple[tuple[int, int], int, str]:
    """Return the size of an image, its shade and its type."""
    image = jitney.Image(base64.b64decode(encoded or ""))
    return (image.width, image.height), int(image.to_numpy("L")[0, 0]), image.media_type


def test_whole_images(client: openai.OpenAI) -> None:
    answer = client.images.generate(model="paint", prompt="a bus", size="16x24")  # type: ignore[arg-type]
    assert answer.created > 1_700_000_000
    assert (answer.output_format, answer.size) == ("png", "16x24")
    assert [opened(image.b64_json) for image in answer.data or []] == [((16, 24), 200, "image/png")]
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (2, 5, 7)
    several = client.images.generate(model="paint", prompt="a bus", n=3, extra_body={"seed": 7}, output_format="webp")
    assert [opened(image.b64_json)[0] for image in several.data or []] == [(8, 8)] * 3
    assert [
        abs(opened(image.b64_json)[1] - shade) <= 2
        for image, shade in zip(several.data or [], (207, 208, 209), strict=True)
    ]
    assert {opened(image.b64_json)[2] for image in several.data or []} == {"image/webp"}
    assert several.output_format == "webp"
    assert several.usage is not None and several.usage.output_tokens == 15
    small = client.images.generate(model="dots", prompt="12345", response_format="b64_json", size="auto")
    assert [opened(image.b64_json) for image in small.data or []] == [((2, 2), 5, "image/png")]
    assert small.usage is None


def test_previews(client: openai.OpenAI) -> None:
    events = list(client.images.generate(model="paint", prompt="a bus", stream=True, partial_images=2))
    assert [event.type for event in events] == [
        "image_generation.partial_image",
        "image_generation.partial_image",
        "image_generation.completed",
    ]
    assert [opened(event.b64_json)[1] for event in events] == [50, 100, 200]
    assert {(event.size, event.output_format, event.quality, event.background) for event in events} == {
        ("auto", "png", "auto", "auto")
    }
    assert [event.partial_image_index for event in events if event.type != "image_generation.completed"] == [0, 1]
    last = events[-1]
    assert last.type == "image_generation.completed" and last.usage.total_tokens == 7
    [alone] = client.images.generate(model="dots", prompt="12345", stream=True, partial_images=3)
    assert (alone.type, opened(alone.b64_json)[1]) == ("image_generation.completed", 5)


def test_events_have_names_and_no_end_mark(server: Server) -> None:
    body = {"model": "paint", "prompt": "a bus", "stream": True, "partial_images": 1}
    blocks = server.post("/v1/images/generations", body).body.decode().split("\n\n")
    names = [block.split("\n")[0] for block in blocks]
    assert names == ["event: image_generation.partial_image", "event: image_generation.completed", ""]


def test_failures(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError):
        client.images.generate(model="paint", prompt="hurt", stream=True)
    with pytest.raises(openai.APIError) as caught:
        list(client.images.generate(model="paint", prompt="hurt", stream=True, partial_images=1))
    assert caught.value.code == "model_failed"


@pytest.mark.parametrize(
    ("model", "fields", "param", "says"),
    [
        ("paint", {"size": "big"}, "size", "WIDTHxHEIGHT"),
        ("dots", {"size": "16x16"}, "size", "have one size"),
        ("paint", {"response_format": "url"}, "response_format", "stores no images"),
        ("paint", {"n": 11}, "n", "from 1 to 10, got 11"),
        ("paint", {"n": 2, "stream": True}, "n", "a stream has one image"),
        ("paint", {"partial_images": 4}, "partial_images", "from 0 to 3"),
        ("paint", {"prompt": None}, "prompt", "is missing"),
        ("paint", {"output_format": "tiff"}, "output_format", "tiff"),
        ("dots", {"output_format": "webp"}, "output_format", "does not take it"),
        ("dots", {"background": "transparent"}, "background", "does not take it"),
    ],
)
def test_what_is_wrong_is_named(
    client: openai.OpenAI, model: str, fields: dict[str, Any], param: str, says: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/images/generations", cast_to=object, body={"model": model, "prompt": "a", **fields})
    assert caught.value.param == param, caught.value.body
    assert says in caught.value.message
