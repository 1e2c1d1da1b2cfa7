"""The bounds on the images and arrays of one item: how many there are, and the pixels of all images."""

import threading
from collections.abc import Callable
from typing import Any, Final

from jitney.errors import InvalidInput
from jitney.types.image import Image

MOST_MEDIA: Final = 4096
"""Images and arrays of one item. Each takes about 50 microseconds; a body of 64 MiB can hold a million."""


class ItemPixels(threading.local):
    """Counts the images and arrays of one item, and the pixels of its images. A thread decodes one item at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._pixels = 0
        self._images = 0
        self._media = 0

    def counting(self, decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a decoder of items that counts from 0 for each item."""

        def decode_item(data: Any) -> Any:
            self._pixels = self._images = self._media = 0
            return decode(data)

        return decode_item

    def count(self) -> None:
        """Count one more image or array; InvalidInput if the item has too many."""
        self._media += 1
        if self._media > MOST_MEDIA:
            raise InvalidInput(
                f"the item has more than {MOST_MEDIA} images and arrays; "
                "send one array instead of many, or several items",
                status=413,
            )

    def add(self, image: Image) -> None:
        """Count one more image, of which only the header is read; InvalidInput if the item has too many pixels."""
        self._pixels += image.width * image.height
        self._images += 1
        if self._pixels > self.most:
            raise InvalidInput(
                f"the first {self._images} images of the item have {self._pixels} pixels together, allowed are "
                f"{self.most} (option `max_pixels`); send fewer or smaller images",
                status=413,
            )
