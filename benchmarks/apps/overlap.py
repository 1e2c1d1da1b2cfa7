"""Models for `benchmarks/overlap.py`. An accelerator is a sleep: it leaves the CPU and the interpreter lock alone.

With OVERLAP=never in the environment the worker decodes, predicts and encodes on one thread, whatever its load.
"""

import os
import time

import jitney
import msgspec
import numpy as np
from jitney.worker.gauge import Gauge

if os.environ.get("OVERLAP") == "never":
    Gauge.note_serial = lambda *_, **__: None


class Row(msgspec.Struct):
    values: list[float]


@jitney.deployment(max_batch_size=32, examples=[{"values": [0.5] * 1000}])
def structs(rows: list[Row]) -> list[int]:
    """Decode 1,000 numbers per item; 10 ms on an accelerator."""
    time.sleep(0.010)
    return [len(row.values) for row in rows]


@jitney.deployment(max_batch_size=16)
def images_in(images: list[jitney.Image]) -> list[int]:
    """Decode a JPEG per item; 20 ms on an accelerator."""
    time.sleep(0.020)
    return [1] * len(images)


MATRIX = np.random.default_rng(0).random((900, 900), np.float32)


@jitney.deployment(max_batch_size=16)
def images_in_cpu(images: list[jitney.Image]) -> list[int]:
    """Decode a JPEG per item; two products of matrices on the CPU."""
    _ = MATRIX @ MATRIX @ MATRIX
    return [1] * len(images)


ROWS, COLUMNS = np.mgrid[0:512, 0:512]
PICTURE = np.stack([ROWS % 256, COLUMNS % 256, (ROWS + COLUMNS) % 256], -1).astype(np.uint8)


@jitney.deployment(max_batch_size=4, examples=["a bus at night"])
def images_out(prompts: list[str]) -> list[jitney.Image]:
    """Encode a picture of 512 x 512 per item; 200 ms on an accelerator."""
    time.sleep(0.200)
    return [jitney.Image(PICTURE) for _ in prompts]
