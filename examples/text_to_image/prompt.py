"""What a client asks for."""

from typing import Annotated

import jitney
import msgspec
from schedule import SIZES


class Prompt(msgspec.Struct):
    """A picture to draw. The same seed draws the same picture again."""

    prompt: str
    negative_prompt: str = ""
    width: int = 32
    height: int = 32
    steps: Annotated[int, msgspec.Meta(ge=1, le=200)] = 20
    guidance_scale: Annotated[float, msgspec.Meta(ge=0, le=20)] = 3.0
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Without one, each picture is another."""
    partial_images: Annotated[int, msgspec.Meta(ge=0, le=50)] = 0
    """How many previews come before the picture, for clients that take parts."""

    @property
    def size(self) -> tuple[int, int]:
        return self.width, self.height


def refusal(prompt: Prompt) -> jitney.InvalidInput | None:
    """Refuse a size that the network was not trained on."""
    if prompt.size in SIZES:
        return None
    known = ", ".join(f"{width} x {height}" for width, height in SIZES)
    return jitney.InvalidInput(f"pictures are {known} pixels, not {prompt.width} x {prompt.height}", field="$.width")
