"""Deployments whose state a person can see: one that computes, fails and dies on demand, and one without requests."""

import os
import time

import jitney


@jitney.deployment(replicas=2, max_batch_size=8, max_queued_items=64, examples=["hello"])
class Words:
    """Counts letters. A millisecond for each hundred letters of the longest text."""

    def predict(self, texts: list[str]) -> list[int]:
        if "die" in texts:
            os._exit(9)
        if "fail" in texts:
            raise ValueError("this text cannot be counted")
        time.sleep(max(map(len, texts)) / 100_000)
        return [len(text) for text in texts]


@jitney.deployment(examples=[1.0])
def double(numbers: list[float]) -> list[float]:
    """Twice the number."""
    return [2 * number for number in numbers]
