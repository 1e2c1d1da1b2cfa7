"""A model that takes as many megabytes as it is asked to."""

import jitney


@jitney.deployment(max_batch_size=1)
def greedy(megabytes: list[int]) -> list[int]:
    return [len(bytearray(b"x") * (one << 20)) for one in megabytes]
