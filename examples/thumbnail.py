"""Images in, images out: a thumbnail of at most 128 by 128 pixels. Needs pillow.

    jitney serve examples/thumbnail.py
    curl -s 127.0.0.1:8000/thumbnail -H 'content-type: image/jpeg' -H 'accept: image/png' \\
         --data-binary @photo.jpg -o thumbnail.png
"""

import jitney
import numpy as np

TEAL = np.full((480, 640, 3), (0, 128, 128), np.uint8)
GREY = np.full((30, 20), 90, np.uint8)


@jitney.deployment(max_batch_size=16, examples=[jitney.Image(TEAL), jitney.Image(GREY)])
class Thumbnail:
    """Shrinks an image so that neither side is longer than 128 pixels."""

    def predict(self, images: list[jitney.Image]) -> list[jitney.Image]:
        return [self.shrink(image) for image in images]

    def shrink(self, image: jitney.Image) -> jitney.Image:
        small = image.to_pil("RGB").copy()  # a copy: `predict` may run again with the same image
        small.thumbnail((128, 128))
        return jitney.Image(small)
