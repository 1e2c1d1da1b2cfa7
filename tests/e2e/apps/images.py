"""Images in, images out."""

import jitney
from PIL import ImageOps


@jitney.deployment(max_batch_size=8)
def invert(images: list[jitney.Image]) -> list[jitney.Image]:
    """The negative of a picture."""
    return [ImageOps.invert(image.convert("RGB")) for image in images]
