"""A model whose check fails while the test keeps its gate shut."""

import jitney
from witness import is_gate_shut, record


@jitney.deployment(check_interval_s=0.1)
class Checked:
    """Texts, reversed."""

    def predict(self, texts: list[str]) -> list[str]:
        record("predict", texts)
        return [text[::-1] for text in texts]

    def check(self) -> None:
        record("check", [])
        if is_gate_shut():
            raise OSError("the database is away")
