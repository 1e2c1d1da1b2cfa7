"""A model whose weights are not there."""

import jitney


@jitney.deployment
class FailsToLoad:
    def __init__(self) -> None:
        raise FileNotFoundError("the weights are not where they should be")

    def predict(self, texts: list[str]) -> list[str]:
        return texts
