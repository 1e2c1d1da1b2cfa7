"""Models that return their input."""

from typing import Any

import jitney


@jitney.deployment(max_batch_size=64)
class Noop:
    """Any JSON object, back again."""

    def predict(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return items


@jitney.deployment(max_batch_size=64)
def shout(texts: list[str]) -> list[str]:
    """A text, in capitals."""
    return [text.upper() for text in texts]


@jitney.deployment(max_batch_size=64)
def mirror(blobs: list[bytes]) -> list[bytes]:
    """Bytes, reversed."""
    return [blob[::-1] for blob in blobs]
