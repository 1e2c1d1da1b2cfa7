"""Text to image in steps: pictures of one size share a step, whatever their number of steps, guidance and progress.

    jitney serve examples/text_to_image/steps.py
    curl -sN 127.0.0.1:8000/text_to_image -H 'accept: text/event-stream' -H 'content-type: application/json' \\
         -d '{"prompt": "a red heart on a white background", "partial_images": 4}'

A new picture joins the pictures that are being drawn at their next step. Previews are parts of the answer. Clients that
take no parts get the picture: `whole.py` shows how to ask. Needs onnxruntime and pillow.
"""

from dataclasses import dataclass

import jitney
from diffusion import Denoiser, Picture, begin, image
from prompt import Prompt, refusal


@dataclass(slots=True)
class Drawing:
    """A picture between two steps, and the steps after which it is shown."""

    picture: Picture
    shows: frozenset[int]


@jitney.deployment(
    group_by=("width", "height"),
    max_batch_size=8,
    examples=[Prompt("a red heart on a white background", seed=1), Prompt("a yellow moon on blue", steps=12, seed=7)],
)
class TextToImage:
    """Draws a coloured shape as the prompt says."""

    def __init__(self) -> None:
        self.denoiser = Denoiser()

    def admit(self, prompts: list[Prompt]) -> list[Drawing | jitney.InvalidInput]:
        return [self.begin(prompt) for prompt in prompts]

    def begin(self, prompt: Prompt) -> Drawing | jitney.InvalidInput:
        if problem := refusal(prompt):
            return problem
        previews = prompt.partial_images
        shows = (prompt.steps * number // (previews + 1) for number in range(1, previews + 1))
        return Drawing(begin(prompt), frozenset(shows))

    def step(self, drawings: list[Drawing]) -> list[jitney.Step[jitney.Image, jitney.Image]]:
        self.denoiser.step([drawing.picture for drawing in drawings])
        return [self.show(drawing) for drawing in drawings]

    def show(self, drawing: Drawing) -> jitney.Step[jitney.Image, jitney.Image]:
        picture = drawing.picture
        if picture.is_done:
            return jitney.End(answer=image(picture.pixels))
        return image(picture.clear) if picture.at in drawing.shows and picture.clear is not None else None
