"""A model whose answer has as many bytes as the item says."""

import jitney


@jitney.deployment(max_answer_bytes=1_000_000)
def wide(items: list[int]) -> list[bytes]:
    return [bytes(size) for size in items]
