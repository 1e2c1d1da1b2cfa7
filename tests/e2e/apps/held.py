"""A model of arrays that waits at the gate."""

import jitney
import numpy as np
from witness import record, wait_at_gate


@jitney.deployment(max_batch_size=64)
def held(values: np.ndarray) -> np.ndarray:
    record("predict", ["array"] * len(values))
    wait_at_gate()
    return values
