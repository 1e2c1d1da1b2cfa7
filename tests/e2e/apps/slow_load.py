"""A model that loads for as long as the gate is shut."""

import jitney
from witness import record, wait_at_gate


@jitney.deployment
class SlowLoad:
    def __init__(self) -> None:
        record("load", [])
        wait_at_gate()

    def predict(self, texts: list[str]) -> list[str]:
        return texts
