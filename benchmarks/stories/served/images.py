"""The same pictures with jitney: which fields must agree is a property of the model; nothing else is said."""

import jitney
import msgspec

from stories.pictures import Diffusion, Order


class Prompt(msgspec.Struct):
    prompt: str
    width: int = 512
    height: int = 512
    steps: int = 20
    guidance_scale: float = 7.5


@jitney.deployment(group_by=("width", "height", "steps", "guidance_scale"))
class TextToImage:
    def __init__(self) -> None:
        self.model = Diffusion()

    def predict(self, prompts: list[Prompt]) -> list[jitney.Image]:
        orders = [Order(one.prompt, one.width, one.height, one.steps, one.guidance_scale) for one in prompts]
        return [jitney.Image(picture) for picture in self.model.paint(orders)]
