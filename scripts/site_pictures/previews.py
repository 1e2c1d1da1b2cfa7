"""Previews of two pictures, drawn by the model of examples/text_to_image."""

import sys
from pathlib import Path

import jitney.testing
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = [("a red heart on white", 1), ("a yellow moon on blue", 7)]
"""A prompt, and its seed."""
PREVIEWS, STEPS, SIDE, GAP = 5, 20, 96, 4


def draw(path: Path) -> None:
    """Write a row for each prompt: its previews, and the picture as the last."""
    sys.path.insert(0, str(ROOT / "examples/text_to_image"))
    from prompt import Prompt  # noqa: PLC0415 - of the example
    from steps import TextToImage  # noqa: PLC0415

    step = SIDE + GAP
    strip = Image.new("RGB", ((PREVIEWS + 1) * step - GAP, len(PROMPTS) * step - GAP), "white")
    with jitney.testing.inline(TextToImage) as models:
        for row, (text, seed) in enumerate(PROMPTS):
            prompt = Prompt(text, width=48, height=48, steps=STEPS, seed=seed, partial_images=PREVIEWS)
            parts = models[TextToImage].stream(prompt)
            images = [*parts, parts.end.answer]
            for column, image in enumerate(images):
                shown = image.to_pil().convert("RGB").resize((SIDE, SIDE), Image.Resampling.NEAREST)
                strip.paste(shown, (column * step, row * step))
    strip.quantize(64).save(path, optimize=True)
