"""The ready-made embedding model: right similarities, and a text's vector does not depend on its batch."""

import importlib.util
from typing import Any

import numpy as np
import pytest
from jitney import ConfigError
from jitney.context import leave, share_cores
from jitney.models import READY_MADE

pytestmark = pytest.mark.skipif(bool(READY_MADE["minilm"].missing), reason="what it needs is not installed")


@pytest.fixture(scope="module")
def model() -> Any:
    from jitney.models.minilm import MiniLM  # noqa: PLC0415 - may not be installed

    share_cores(1)
    try:
        return MiniLM()
    finally:
        leave()


def test_alike_texts_score_higher_than_others(model: Any) -> None:
    pairs = [
        ("How many people live in London?", "London has nine million inhabitants."),
        ("A man is eating food.", "Somebody has a meal."),
    ]
    for one, other in pairs:
        first, second, coffee = model.predict([one, other, "I like strong coffee."]).vectors
        assert first @ second > 0.5
        assert first @ coffee < 0.2


def test_vectors_are_float32_of_length_one(model: Any) -> None:
    vectors = model.predict(["a", "", "word " * 1000]).vectors
    assert vectors.dtype == np.float32
    assert vectors.shape == (3, 384)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_a_text_alone_is_as_in_a_batch(model: Any) -> None:
    texts = ["short", "", "a somewhat longer sentence about buses", "naïve café 東京 🚌"]
    together = model.predict(texts).vectors
    for text, vector in zip(texts, together, strict=True):
        assert np.abs(model.predict([text]).vectors[0] - vector).max() < 1e-6


def test_long_texts_are_cut_at_256_tokens(model: Any) -> None:
    one, other = model.predict(["bus " * 400, "bus " * 300 + "coffee"]).vectors
    assert np.array_equal(one, other)


def test_tokens_are_those_that_were_read(model: Any) -> None:
    # An empty text has its two marks; what is cut off was not read.
    found = model.predict(["", "a bus", "bus " * 400])
    assert found.tokens.tolist() == [2, 4, 256]


def test_missing_weights_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from jitney.models.minilm import weights  # noqa: PLC0415 - may not be installed

    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(ConfigError, match=r"pip install onnxruntime"):
        weights()
