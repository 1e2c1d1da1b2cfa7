"""Between the wire and `predict`: items are decoded to what it takes, and what it returns is encoded."""

from jitney.codecs.codec import Codec
from jitney.codecs.decoded import Decoded, pick
from jitney.codecs.plain import plain

__all__ = ["Codec", "Decoded", "pick", "plain"]
