"""A model of one's own in twenty lines: texts to vectors, with numpy only.

The vectors count letter triples, hashed to 256 places: good enough to find near-duplicates, no language model.

    jitney serve examples/embedder.py
    curl -s 127.0.0.1:8000/embedder -H 'content-type: text/plain' -d 'How big is London?'
"""

import zlib

import jitney
import numpy as np


@jitney.deployment(max_batch_size=64, examples=["How big is London?", "How big is Paris?"])
class Embedder:
    """Turns texts into unit vectors that are close when the texts share letter triples."""

    def predict(self, texts: list[str]) -> np.ndarray:
        counts = np.zeros((len(texts), 256), np.float32)
        for row, text in zip(counts, texts, strict=True):
            for start in range(max(1, len(text) - 2)):
                row[zlib.crc32(text[start : start + 3].lower().encode()) % 256] += 1
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)
