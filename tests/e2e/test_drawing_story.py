"""The story with the model of `examples/text_to_image`: every endpoint of every server, as short as it can be."""

import importlib
import importlib.util
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
drawing: Any = importlib.import_module("stories.drawing")
drawing.STEPS = 9  # the fewest that have eight previews

pytestmark = pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed")


@pytest.mark.parametrize("server", list(drawing.WAYS))
def test_every_endpoint_draws_what_was_asked_for(server: str) -> None:
    with drawing.start(server) as running:
        for way in drawing.WAYS[server]:
            figures = drawing.load(running.port, way, seconds=0.4).figures
            assert (figures["wrong"], figures["missing"]) == (0, 0), way.path
            assert 0 < figures.get("first_p50_ms", 1) <= figures["p95_ms"], way.path


def test_the_picture_of_another_seed_is_wrong() -> None:
    """A stream that ends before its picture is wrong too."""
    (_, streamed), (plain, *_) = drawing.WAYS[drawing.BY_HAND], drawing.WAYS[drawing.WHOLE]
    Image.frombytes("RGB", *drawing.drawn()[1]).save(file := io.BytesIO(), "png")
    assert [plain.is_answer(number, file.getvalue()) for number in range(3)] == [False, True, False]
    assert not plain.is_answer(0, b"")
    assert not streamed.is_answer(0, b'event: preview\ndata: {"image": ""}\n\n' * 8)
