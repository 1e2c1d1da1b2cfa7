"""Images in, images out: a thumbnail of at most 128 by 128 pixels. Needs pillow.

    jitney serve examples/thumbnail.py
    curl -s 127.0.0.1:8000/thumbnail -H 'content-type: image/jpeg' -H 'accept: image/png' \\
         --data-binary @photo.jpg -o thumbnail.png
"""

import jitney
from PIL import Image


@jitney.deployment(max_batch_size=16, examples=[Image.new("RGB", (640, 480), "teal"), Image.new("L", (20, 30))])
class Thumbnail:
    """Shrinks an image so that neither side is longer than 128 pixels."""

    def predict(self, images: list[jitney.Image]) -> list[jitney.Image]:
        return [self.shrink(image) for image in images]

    def shrink(self, image: jitney.Image) -> jitney.Image:
        small = image.convert("RGB")
        small.thumbnail((128, 128))
        return small
