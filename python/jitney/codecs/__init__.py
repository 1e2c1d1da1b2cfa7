"""Between the wire and `predict`: items are decoded to what it takes, and what it returns is encoded.

Runs in workers; a program encodes its calls with it. Must not import `deployments` or anything above it.
"""

from jitney.codecs.codec import Codec
from jitney.codecs.decode.decoded import Decoded, pick
from jitney.codecs.plain import plain

__all__ = ["Codec", "Decoded", "pick", "plain"]
