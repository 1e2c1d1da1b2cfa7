"""A model with the habits of real ones: it prints, starts threads, and forks a child that outlives everything."""

import os
import signal
import sys
import threading

import jitney
from witness import record

print("noise on stdout while importing")


@jitney.deployment(max_batch_size=8)
class Noisy:
    def __init__(self) -> None:
        print("noise on stdout while loading", flush=True)
        os.write(1, b"noise on descriptor 1\n")
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        record("forked", [child])

    def predict(self, texts: list[str]) -> list[str]:
        record("predict", texts)
        print("noise on stdout while predicting", texts)
        print("noise on stderr", file=sys.stderr)
        return [text[::-1] for text in texts]
