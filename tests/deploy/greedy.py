"""A model that takes the megabytes that are asked for."""

import jitney


@jitney.deployment(max_batch_size=1)
def greedy(megabytes: list[int]) -> list[int]:
    return [len(bytearray(b"x") * (one << 20)) for one in megabytes]
