"""Has memory for two items at once."""

import jitney


@jitney.deployment(max_batch_size=8, examples=["a"])
def narrow(texts: list[str]) -> list[str]:
    if len(texts) > 2:
        raise MemoryError(f"no room for {len(texts)}")
    return [text.upper() for text in texts]
