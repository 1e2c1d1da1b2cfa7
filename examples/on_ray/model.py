"""A model for a Ray cluster: it says on which machine it runs."""

import os
import socket
import time

import jitney

MACHINE = os.environ.get("MACHINE") or socket.gethostname()


@jitney.deployment(max_batch_size=8, num_cpus=1, replicas=2, examples=["a text"])
class Words:
    """Counts the words of each text."""

    def predict(self, texts: list[str]) -> list[dict[str, str | int]]:
        time.sleep(0.05)  # as long as a small model computes
        return [{"text": text, "words": len(text.split()), "machine": MACHINE} for text in texts]
