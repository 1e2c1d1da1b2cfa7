"""A text-to-image service: requests with the same size, steps and guidance share a batch.

This example has no diffusion model. It sleeps as long as one might take, and paints stripes whose colours depend on the
prompt and the seed. It shows the API and how batches form. Needs pillow.

    jitney serve examples/text_to_image.py
    curl -s 127.0.0.1:8000/text_to_image -H 'accept: image/png' -o image.png \\
         -H 'content-type: application/json' -d '{"prompt": "a red bus in the rain", "width": 256, "height": 256}'
"""

import time
import zlib

import jitney
import msgspec
import numpy as np


class Prompt(msgspec.Struct):
    """What to paint."""

    prompt: str
    width: int = 512
    height: int = 512
    steps: int = 20
    guidance_scale: float = 7.5
    seed: int | None = None


@jitney.deployment(
    group_by=("width", "height", "steps", "guidance_scale"),
    max_batch_size=8,
    examples=[Prompt("a red bus in the rain", 64, 64, 2), Prompt("a blue bus in the sun", 64, 64, 2, seed=7)],
)
class TextToImage:
    """Paints stripes whose colours depend on the prompt and the seed."""

    def predict(self, prompts: list[Prompt]) -> list[jitney.Image]:
        for _ in range(prompts[0].steps):
            time.sleep(0.002 + 0.0005 * len(prompts))  # a step costs little more for eight than for one
        return [self.paint(prompt) for prompt in prompts]

    def paint(self, prompt: Prompt) -> jitney.Image:
        seed = zlib.crc32(prompt.prompt.encode()) if prompt.seed is None else prompt.seed
        colours = np.random.default_rng(seed).integers(0, 256, (8, 3), np.uint8)
        stripe = np.arange(prompt.width) * len(colours) // prompt.width
        pixels = np.broadcast_to(colours[stripe], (prompt.height, prompt.width, 3))
        return jitney.Image(np.ascontiguousarray(pixels))
