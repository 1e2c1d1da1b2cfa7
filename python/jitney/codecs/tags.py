"""What the bytes of an item are. The numbers are the frame format's; a test compares them with `jitney._core`."""

from typing import Final

JSON: Final = 0
MSGPACK: Final = 1
TEXT: Final = 2
BYTES: Final = 3
TENSOR: Final = 4

NAMES: Final = {JSON: "JSON", MSGPACK: "msgpack", TEXT: "text", BYTES: "raw bytes", TENSOR: "an array"}
