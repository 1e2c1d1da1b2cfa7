"""A model that prints what it is asked to, as models do it: in pieces, without an end, at length, in no encoding."""

import os
import sys

import jitney

print("imported")


@jitney.deployment(max_batch_size=1)
class Printing:
    def __init__(self) -> None:
        print("loaded")

    def predict(self, texts: list[str]) -> list[str]:
        for text in texts:
            if text == "pieces":
                for piece in ("in ", "pieces", "\n"):
                    os.write(1, piece.encode())
            elif text == "unfinished":
                os.write(2, b"no end")
            elif text == "long":
                print("é" * 40_000)
            elif text == "binary":
                os.write(1, b"caf\xc3\xa9 \xff\xfe\n")
            elif text == "progress":
                os.write(2, b"\r 10 %\r 100 %\n")
            elif text == "raise":
                raise RuntimeError("it cannot be printed")
            else:
                print(f"{text} " * 100, file=sys.stderr)
        return texts
