"""`predict` that returns what cannot be an answer for its batch, when an item asks for it."""

from typing import Any

import jitney
from witness import record


@jitney.deployment(max_batch_size=64)
class WrongOutput:
    def predict(self, texts: list[str]) -> list[str]:
        record("predict", texts)
        answers: Any = [text[::-1] for text in texts]
        if "few" in texts:
            return answers[:-1]
        if "many" in texts:
            return [*answers, "one more"]
        if "none" in texts:
            answers = None
        if "type" in texts:
            answers = [object() for _ in texts]
        return answers
