"""The language model as jitney serves it; the largest batch is theirs, nothing else is set."""

import jitney
import msgspec

from stories import language


class Prompt(msgspec.Struct):
    prompt: str


class Continuation(msgspec.Struct):
    prompt: str
    tokens: list[int]


@jitney.deployment(name="generate", max_batch_size=50)
class Generate:
    def __init__(self) -> None:
        self.model = language.load()

    def predict(self, prompts: list[Prompt]) -> list[Continuation]:
        tokens = self.model.generate([one.prompt for one in prompts])
        return [Continuation(one.prompt, found) for one, found in zip(prompts, tokens, strict=True)]
