"""A device with room for four items."""

import jitney
from witness import record, wait_at_gate


@jitney.deployment(max_batch_size=16)
def small(texts: list[str]) -> list[str]:
    record("predict", texts)
    wait_at_gate()
    if len(texts) > 4:
        raise MemoryError(f"{len(texts)} items do not fit")
    return [text[::-1] for text in texts]
