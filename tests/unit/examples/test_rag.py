"""The stages of `examples/rag/rag.py`, with small models instead of those that have weights."""

import sys
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import jitney
import numpy as np
import pytest
from jitney import testing
from numpy.typing import NDArray

EXAMPLE = Path(__file__).parents[3] / "examples/rag/rag.py"


@jitney.deployment(name="minilm", max_batch_size=32)
class Bag:
    """A vector of the words of a text."""

    def predict(self, texts: list[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), 512), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                vectors[row, crc32(word.encode()) % 512] += 1
        return vectors


@jitney.deployment(name="smollm2", batched=False)
class Quote:
    """Says the first note that it was given."""

    def predict(self, chat: jitney.Chat) -> Iterator[str]:
        notes = str(chat.messages[0].content).partition("\n\n")[2]
        for word in notes.partition("\n")[0].removeprefix("- ").split():
            yield f"{word} "


@pytest.fixture
def models() -> Iterator[jitney.SyncModels]:
    with testing.inline(str(EXAMPLE), Bag, Quote) as models:
        yield models
    sys.modules.pop("rag", None)


QUESTION = "When does the night bus leave the station?"


def test_the_search_puts_the_best_passage_first(models: jitney.SyncModels) -> None:
    hits = models.search(QUESTION)
    assert len(hits) == 5
    assert hits[0]["passage"].startswith("The night bus leaves the station")
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)


def test_the_answer_comes_in_parts_from_what_was_found(models: jitney.SyncModels) -> None:
    with models.ask.stream(QUESTION) as answer:
        parts = list(answer)
    assert len(parts) > 5
    assert "".join(parts).startswith("The night bus leaves the station")
