"""The model that is broken. A file in its folder switches each fault on."""

import os
import signal
import time
from pathlib import Path

import jitney

FOLDER = Path(os.environ["BREAKAGES_FOLDER"])
BATCH_S = 0.01
ITEM_S = 0.002
CHARACTER_S = 1e-4
"""What a character of the longest text of a batch takes."""
LONGEST_S = 0.3
LEAK_BYTES = 2 << 20
"""What a batch leaves behind while `leak` is there."""


def number(name: str, default: float) -> float:
    """Return the number in a file of the folder."""
    try:
        return float((FOLDER / name).read_text())
    except (OSError, ValueError):
        return default


@jitney.deployment(replicas=2, max_batch_size=8, max_queued_items=32, examples=["a"])
class Shout:
    """Says a text in capital letters. A batch takes 10 ms, and 2 ms for each text."""

    def __init__(self) -> None:
        self.kept: list[bytearray] = []
        if (FOLDER / "no-weights").exists():
            raise FileNotFoundError("weights.bin: no such file")

    def predict(self, texts: list[str]) -> list[str]:
        """Return each text in capital letters, if nothing is broken."""
        if "poison" in texts:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "hang" in texts:
            time.sleep(3600)
        slower = number("slower", 1) * number(f"slower-{jitney.context().replica}", 1)
        time.sleep((BATCH_S + ITEM_S * len(texts)) * slower)
        time.sleep(min(CHARACTER_S * max(map(len, texts)), LONGEST_S))
        if (FOLDER / "leak").exists():
            self.kept.append(bytearray(os.urandom(1)) * LEAK_BYTES)
        if (FOLDER / "write").exists():
            with Path((FOLDER / "write").read_text()).open("wb") as file:
                file.write(b"x" * (1 << 20))
        return [text.upper() for text in texts]
