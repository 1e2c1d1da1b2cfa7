"""Images in, images out."""

import jitney


@jitney.deployment(max_batch_size=8)
def invert(images: list[jitney.Image]) -> list[jitney.Image]:
    """The negative of a picture."""
    return [jitney.Image(255 - image.to_numpy()) for image in images]
