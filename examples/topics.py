"""Sorts messages by topic, with the weights of a real sentence embedding model.

    jitney serve examples/topics.py
    curl -s 127.0.0.1:8000/topics -d '"Where is my order?"'

Needs what the ready-made model minilm needs: `jitney models` says it.
"""

import jitney
from jitney.models import MiniLM

TOPICS = ["delivery", "payment", "a device that does not work"]


@jitney.deployment(max_batch_size=32, examples=["Where is my order?", "It does not switch on."])
class Topics:
    """Says which topic a message is nearest to."""

    def __init__(self) -> None:
        self.model = MiniLM()  # loads 23 MB of weights, once per worker
        self.topics = self.model.predict(TOPICS).vectors

    def predict(self, texts: list[str]) -> list[str]:
        scores = self.model.predict(texts).vectors @ self.topics.T
        return [TOPICS[place] for place in scores.argmax(axis=1)]
