"""Text to image, each batch to the end: pictures of one size, with the same steps and guidance, share a batch.

    jitney serve examples/text_to_image/whole.py
    curl -s 127.0.0.1:8000/text_to_image -H 'accept: image/png' -o image.png \\
         -H 'content-type: application/json' -d '{"prompt": "a red heart on a white background", "width": 48}'

Needs onnxruntime and pillow. `steps.py` serves the same model in steps, which answers sooner when several clients ask.
"""

import jitney
from diffusion import Denoiser, begin, image
from prompt import Prompt, refusal


@jitney.deployment(
    group_by=("width", "height", "steps", "guidance_scale"),
    max_batch_size=8,
    examples=[Prompt("a red heart on a white background", seed=1), Prompt("a yellow moon on blue", steps=12, seed=7)],
)
class TextToImage:
    """Draws a coloured shape as the prompt says."""

    def __init__(self) -> None:
        self.denoiser = Denoiser()

    def predict(self, prompts: list[Prompt]) -> list[jitney.Image | jitney.InvalidInput]:
        if problem := refusal(prompts[0]):
            return [problem for _ in prompts]  # a batch has pictures of one size
        pictures = [begin(prompt) for prompt in prompts]
        for _ in range(prompts[0].steps):
            self.denoiser.step(pictures)
        return [image(picture.pixels) for picture in pictures]
