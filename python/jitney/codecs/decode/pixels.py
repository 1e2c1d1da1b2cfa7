"""The bound on the pixels of one item, which may have many images."""

import threading
from collections.abc import Callable
from typing import Any

from jitney.errors import InvalidInput
from jitney.types.image import Image


class ItemPixels(threading.local):
    """Counts the pixels that the images of one item have together. A thread decodes one item at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._pixels = 0
        self._images = 0

    def counting(self, decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a decoder of items that counts from 0 for each item."""

        def decode_item(data: Any) -> Any:
            self._pixels = self._images = 0
            return decode(data)

        return decode_item

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
