"""What the apps of the tests share: a record of every call of `predict`, and a gate that holds it.

The harness puts this folder on the path of workers, and names the files in the environment.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path


def record(kind: str, items: Sequence[object]) -> None:
    """Append one line, in one write, so that several workers can share the file."""
    line = json.dumps({"pid": os.getpid(), "kind": kind, "items": list(items)}) + "\n"
    descriptor = os.open(os.environ["JITNEY_TEST_CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def is_gate_shut() -> bool:
    """Whether the test wants models held."""
    return Path(os.environ["JITNEY_TEST_GATE"]).exists()


def wait_at_gate() -> None:
    """Hold the model for as long as the test keeps its gate shut."""
    while is_gate_shut():
        time.sleep(0.002)
