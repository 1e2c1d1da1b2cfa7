"""A script that finds the two most similar lines of a file. It serves its own class, in two worker processes.

python examples/programs/duplicates.py README.md
"""

import sys
import zlib
from pathlib import Path

import jitney
import numpy as np


@jitney.deployment(max_batch_size=64)
class Triples:
    """Counts letter triples and returns a unit vector per text."""

    def predict(self, texts: list[str]) -> np.ndarray:
        counts = np.zeros((len(texts), 256), np.float32)
        for row, text in zip(counts, texts, strict=True):
            for start in range(max(1, len(text) - 2)):
                row[zlib.crc32(text[start : start + 3].lower().encode()) % 256] += 1
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def main(path: str) -> None:
    lines = [line.strip() for line in Path(path).read_text().splitlines() if len(line.strip()) > 30]
    with jitney.run_sync(Triples, options={"triples.replicas": 2}) as models:
        vectors = np.stack(models[Triples].many(lines))
    similarity = np.triu(vectors @ vectors.T, k=1)
    first, second = np.unravel_index(int(similarity.argmax()), similarity.shape)
    print(f"{len(lines)} lines; most similar ({similarity.max():.2f}):")
    print(f"  {lines[first]}\n  {lines[second]}")


if __name__ == "__main__":  # workers import this file again, for the class
    main(sys.argv[1])
