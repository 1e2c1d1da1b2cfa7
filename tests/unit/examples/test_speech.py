"""The voice of `examples/speech.py`: parts of one speech, and a speech that is given up."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("espeakng_loader") is None:
    pytest.skip("espeakng_loader is not installed", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from speech import MOST_PIECES, RATE, Speech

TEXT = "A jitney is a small bus that leaves when it is full, or when it is time. "


@pytest.fixture(scope="module")
def model() -> Speech:
    return Speech()


def samples(parts: list[Any]) -> np.ndarray:
    return np.frombuffer(b"".join(parts), np.int16)


def test_a_speech_comes_in_parts_that_can_be_heard(model: Speech) -> None:
    parts = list(model.predict(TEXT))
    assert len(parts) > 3
    sound = samples(parts)
    assert 2 * RATE < len(sound) < 10 * RATE
    assert np.abs(sound).max() > 1000
    again = samples(list(model.predict(TEXT)))
    assert abs(len(again) - len(sound)) < len(sound) / 20, "the same text takes as long: the voice varies a little"
    assert len(samples(list(model.predict("Yes.")))) < len(sound) / 2


def test_a_speech_that_is_given_up_leaves_nothing_behind(model: Speech) -> None:
    whole = len(samples(list(model.predict("Yes."))))
    parts = model.predict(TEXT * 100)
    assert isinstance(next(parts), bytes)
    assert model.parts.qsize() <= MOST_PIECES
    parts.close()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert abs(len(samples(list(model.predict("Yes.")))) - whole) < whole / 5
