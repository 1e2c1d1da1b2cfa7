"""The story with the model of `examples/text_to_image`: every endpoint of every server, as short as it can be."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
drawing: Any = importlib.import_module("stories.drawing")

pytestmark = pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed")


@pytest.mark.parametrize("server", list(drawing.WAYS))
def test_every_endpoint_draws_what_was_asked_for(server: str) -> None:
    with drawing.start(server) as running:
        for way in drawing.WAYS[server]:
            figures = drawing.load(running.port, way, seconds=0.4).figures
            assert (figures["wrong"], figures["missing"]) == (0, 0), way.path
            assert 0 < figures.get("first_p50_ms", 1) <= figures["p95_ms"], way.path


def test_the_picture_of_another_seed_is_wrong() -> None:
    """And so is a stream that ends before its picture."""
    (_, streamed), (plain, *_) = drawing.WAYS[drawing.BY_HAND], drawing.WAYS[drawing.WHOLE]
    assert len({colours for _, colours in drawing.drawn()}) == len(drawing.WANTED)
    assert not plain.is_answer(0, b"")
    assert not streamed.is_answer(0, b'event: preview\ndata: {"image": ""}\n\n' * 8)
