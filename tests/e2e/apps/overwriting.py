"""A model that writes over its input and then raises."""

import jitney
import numpy as np
from witness import record, wait_at_gate


@jitney.deployment(max_batch_size=16)
def overwrite(x: np.ndarray) -> np.ndarray:
    record("predict", [f"{row[0]:g}" for row in x])
    wait_at_gate()
    assert x.flags.writeable, "torch.from_numpy would warn"
    is_bad = bool((x < 0).any())
    x *= 2
    if is_bad:
        raise RuntimeError("a negative number")
    return x
