"""Only items that agree on their group key may share a batch."""

import jitney
import msgspec
from witness import record, wait_at_gate


class Prompt(msgspec.Struct):
    prompt: str
    width: int = 512
    height: int = 512
    steps: int = 20


class Picture(msgspec.Struct):
    prompt: str
    keys: list[tuple[int, int, int]]
    size: int


@jitney.deployment(group_by=("width", "height", "steps"), max_batch_size=8)
class Grouped:
    def predict(self, prompts: list[Prompt]) -> list[Picture]:
        record("predict", [prompt.prompt for prompt in prompts])
        wait_at_gate()
        keys = sorted({(prompt.width, prompt.height, prompt.steps) for prompt in prompts})
        return [Picture(prompt.prompt, keys, len(prompts)) for prompt in prompts]
