"""What the programs of `programs.py` compute, in their own process or in jitney's workers."""

import time

import jitney


def wait(count: int) -> None:
    """An accelerator: 5 ms and 0.1 ms per item, without the CPU."""
    time.sleep(0.005 + 0.0001 * count)


@jitney.deployment(max_batch_size=64)
def sleepy(texts: list[str]) -> list[str]:
    wait(len(texts))
    return [text.upper() for text in texts]


def alone(text: str) -> str:
    """The same model for one who does not batch."""
    wait(1)
    return text.upper()


@jitney.deployment(max_batch_size=64)
def noop(texts: list[str]) -> list[str]:
    return texts
