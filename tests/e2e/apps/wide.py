"""A model whose answer is as large as it is asked to be."""

import jitney


@jitney.deployment(max_answer_bytes=1_000_000)
def wide(items: list[int]) -> list[bytes]:
    return [bytes(size) for size in items]
